#pragma once
// Norms of gradients and parameters, with the same bits however flat memory is divided among ranks.
//
// Sums of squares are taken in f64 over each part of a parameter between two multiples of 1024 elements. Nobody's range
// cuts such a piece, so every piece is summed by one rank, in one order, whoever that is. A vector with one entry per
// piece, zero for the pieces of other ranks, becomes whole by adding these vectors, which is exact, and is then summed
// in order. Where a group of ranks divides a parameter among them (group_placement.h), the sums of its slices are added
// over the group; what every rank of the group has counts once, as the first of them has it.
#include <functional>

#include "collectives/communicator.h"
#include "engine/update.h"
#include "optim/flat.h"

namespace weft {

// Adds up what all ranks have, in place: an all-reduce. Not needed where one rank owns everything.
using Combine = std::function<void(Tensor& sums)>;

class Norms {
 public:
  Norms() = default;
  Norms(const FlatLayout& layout, Combine combine);

  enum Row { of_gradients, of_values };  // two kinds of values may be measured at once
  void start(int rows);
  // x: elements of a place from number `begin` of the flat memory on; no place may be added to a row twice.
  void add(Row row, int64_t place, const Tensor& x, int64_t begin);
  void finish();  // every rank must call this

  double of(Row row, int64_t place) const;
  double of_all(Row row) const;

 private:
  int64_t places() const { return static_cast<int64_t>(begins_.size()); }
  void add_slices();

  std::vector<int64_t> first_piece_;            // of each place, and the number of all
  std::vector<int64_t> begins_;                 // of each place
  std::vector<const Communicator*> slices_of_;  // of each place, the group that divides it
  std::vector<Communicator*> groups_;           // those
  Device device_ = Device::cpu;
  int rows_ = 0;
  Combine combine_;
  std::vector<SquareSumsRun> runs_[2];  // by row
  Tensor totals_;                       // of squares, by row and place
};

// What gradients of this norm are to be multiplied by so that it is at most `most`. Error if the norm is infinite or
// NaN: scaling would hide a step that has gone wrong. Nothing has been changed by then, on any rank, so a caller may
// catch it and go on without this step.
double clip(double norm, double most);

}  // namespace weft
