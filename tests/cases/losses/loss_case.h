// SPDX-License-Identifier: Apache-2.0
#pragma once
// A loss or a quantizer with inputs and a plain formula for the whole batch. The tests find every case and compare
// value and all gradients with one process that has the whole batch (tests/losses/loss_checks.h). Finite differences
// confirm the gradients, as for any DistributedCase.
#include "tests/cases/collectives/collective_case.h"

namespace weft {

class LossCase {
 public:
  struct Inputs {
    Vars rows;      // one row per sample of this rank, or of the whole batch on one process
    Vars shared;    // equal on every rank, such as a temperature
    int64_t first;  // the global number of the first sample
    int64_t total;  // the number of samples in the whole batch
  };
  struct Drawn {
    std::vector<Shape> rows;         // the shape of one sample of each input
    std::vector<Shape> shared = {};  // the shape of each input that is equal on all ranks
    double low = -1, high = 1;       // the range of uniformly drawn values
    int64_t samples = 10;
  };

  const std::string name;
  const std::string variant;  // such as the schedule by which features travel
  const Drawn drawn;
  const std::function<Var(const Inputs&, Communicator&)> share;  // this rank's share of the loss
  const std::function<Var(const Inputs&)> whole;                 // the loss as in its paper, by plain operations
  const DistributedCase distributed;

  // `orders` as in DistributedCase.
  LossCase(std::string name, std::string variant, Drawn drawn, decltype(share) share, decltype(whole) whole,
           int orders = 2);
  ~LossCase();
  LossCase(const LossCase&) = delete;
  LossCase& operator=(const LossCase&) = delete;

  // The number of samples on each rank: different numbers, and with three or more ranks one rank without samples.
  Rows division(int ranks) const;
  Inputs inputs(std::span<const Var> rows, std::span<const Var> shared, int rank, int ranks) const;

  static const std::vector<const LossCase*>& all();
};

}  // namespace weft
