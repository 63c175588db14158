// SPDX-License-Identifier: Apache-2.0
#pragma once
// Norms of gradients and parameters that are bit-identical however flat memory is divided among ranks.
//
// A piece is the part of a parameter between two multiples of 1024 elements. No rank's range cuts a piece, so exactly
// one rank sums the squares of a piece, in f64 and in a fixed order. Each rank has a vector with one entry per piece,
// zero for pieces of other ranks. Adding these vectors over ranks is exact, and the result is summed in order. If a
// group of ranks divides a parameter (collectives/sharding.h), the sums of its slices are added over the group; a
// parameter that every rank of the group has counts once, with the value of the group's first rank.
#include <functional>

#include "weft/collectives/communicator.h"
#include "weft/engine/kernels/update_formulas.h"
#include "weft/optim/flat.h"

namespace weft {

// Sums a tensor over all ranks in place, by an all_reduce. Not needed if one rank owns everything.
using Combine = std::function<void(Tensor& sums)>;

class Norms {
 public:
  Norms() = default;
  Norms(const FlatLayout& layout, Combine combine);

  enum Row { of_gradients, of_values };  // norms of both can be computed together
  void start(int rows);
  // Adds x, elements of a place that begin at element `begin` of flat memory. A place may be added to a row only once.
  void add(Row row, int64_t place, const Tensor& x, int64_t begin);
  void finish();  // every rank must call it

  double of(Row row, int64_t place) const;
  double of_all(Row row) const;

 private:
  int64_t places() const { return static_cast<int64_t>(begins_.size()); }
  void add_slices();

  std::vector<int64_t> first_piece_;            // of each place, then the number of pieces
  std::vector<int64_t> begins_;                 // of each place
  std::vector<const Communicator*> slices_of_;  // the group that divides each place, or null
  std::vector<Communicator*> groups_;           // the different ones of these groups
  Device device_ = Device::cpu;
  int rows_ = 0;
  Combine combine_;
  std::vector<SquareSumsRun> runs_[2];  // by row
  Tensor totals_;                       // sums of squares, by row and place
};

// The factor by which gradients of this norm are multiplied so that the norm is at most `max_norm`. Error if the norm
// is infinite or NaN, since scaling would hide a failed step. No rank has changed anything by then, so a caller may
// catch the Error and skip the step.
double clip(double norm, double max_norm);

}  // namespace weft
