// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the ranks of a job are divided into groups. Every rank knows the groups of all ranks, so all come to the same
// conclusions about placements.
#include <string>
#include <vector>

#include "weft/engine/tensor/pool.h"

namespace weft {

class Partition {
 public:
  using Ranks = std::vector<int, pool::Allocator<int>>;  // by their numbers in the job

  // `groups` have their ranks in the order in which collectives see them; `mine` is the group of this rank.
  Partition(std::vector<Ranks> groups, size_t mine);

  const Ranks& mine() const { return mine_; }  // this rank's group, ascending
  bool operator==(const Partition& other) const { return groups_ == other.groups_ && mine_ == other.mine_; }

  // Whether every rank is a group by itself, so that collectives change no values.
  bool is_of_single_ranks() const { return largest_ == 1; }
  // Whether each of these groups is inside one group of the other partition.
  bool is_inside(const Partition& other) const;
  // Whether these groups and the other ones are axes of a grid: if all ranks of each of these groups hold equal values,
  // they still do after any collective over the other groups.
  bool is_axis_beside(const Partition& other) const;

 private:
  struct Home {
    int group = -1, place = -1;  // -1: the rank is in no group
  };
  Home home(int rank) const {
    return static_cast<size_t>(rank) < homes_.size() ? homes_[static_cast<size_t>(rank)] : Home();
  }
  const Ranks& group(int index) const { return groups_[static_cast<size_t>(index)]; }
  bool in_same_groups(const Ranks& a, const Ranks& b) const;

  std::vector<Ranks> groups_;
  Ranks mine_;
  std::vector<Home> homes_;  // by rank
  size_t largest_ = 0;       // number of ranks of a group
};

std::string text(const Partition::Ranks& ranks);  // "{0, 1, 2}"

}  // namespace weft
