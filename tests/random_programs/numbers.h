// SPDX-License-Identifier: Apache-2.0
#pragma once
// The random numbers of steps: roots, sources, rows and portions. Each is a function of the dice of its step and of the
// group, so all ranks of the group have the same, and a printed program calls the same functions.
#include "tests/random_programs/program.h"
#include "weft/collectives/communicator.h"

namespace weft::random_programs {

// A small generator that costs nothing to set up (splitmix64).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(mixed(seed)) {}
  uint64_t bits() { return mixed(state_ += 0x9E3779B97F4A7C15); }
  int below(int n) { return static_cast<int>(bits() % static_cast<uint64_t>(n)); }
  bool chance(double probability) { return static_cast<double>(bits() >> 11) < probability * 0x1p53; }

 private:
  static uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  uint64_t state_;
};

// `total` rows divided among n ranks; some may get none.
Rows random_split(int64_t total, int n, uint64_t dice);
// For each of n ranks, the rank that it reads, or -1.
Sources random_sources(int n, uint64_t dice);
// What each rank, of which rows[r] is the number of rows, sends to each.
Counts random_counts(const Rows& rows, uint64_t dice);

// One entry for each rank of the world: the one of this rank, and those of the ranks of a group, in its order.
inline int64_t own(const Communicator& world, const Extents& all) {
  return all[static_cast<size_t>(world.rank().value)];
}
inline Rows rows_in(const Communicator& group, const Extents& all) {
  Rows rows;
  for (int r = 0; r < group.size(); ++r) rows.push_back(all[static_cast<size_t>(group.global({r}).value)]);
  return rows;
}

// A linear collective with random portions of rows: empty, overlapping, with gaps, with rows that nobody reads, and
// sums of prefixes of unequal length.
struct RandomPortions {
  Rows given_rows, result_rows;   // of each rank
  std::vector<Portion> portions;  // [reader * ranks + source]

  static RandomPortions draw(const Rows& rows, uint64_t dice);

  RandomPortions adjoint() const;
  Portion portion(int reader, int source) const {
    return portions[static_cast<size_t>(reader) * given_rows.size() + static_cast<size_t>(source)];
  }
  int64_t exposed(int rank) const { return rows_of_rank(given_rows, rank); }
  Verb verb() const { return Verb::custom; }
  Rows agreed() const;  // so that ranks may have different numbers of rows
  static constexpr const char* op_name = "random_portions";
  static constexpr bool by_rows = true, divides = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

// The same with whole tensors: each rank adds those of the ranks that it reads.
struct RandomReads {
  int ranks;
  uint64_t dice;
  bool back = false;

  RandomReads adjoint() const { return {ranks, dice, !back}; }
  Portion portion(int reader, int source) const {
    const int bit = back ? source * ranks + reader : reader * ranks + source;
    return Dice(dice + static_cast<uint64_t>(bit)).below(2) ? whole_tensor : no_portion;
  }
  int64_t exposed(int) const { return 1; }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "random_reads";
  static constexpr bool by_rows = false, sums = false;
  static constexpr Placement result = Placement::varying;
};

}  // namespace weft::random_programs
