#pragma once
// A loss or a quantizer, described so that the tests find it and hold it against one process that has the whole batch:
// in value, and in the gradient of every input (tests/loss_checks.h). Finite differences confirm the gradients, too, as
// those of any distributed case.
#include "collectives/case.h"

namespace weft {

class LossCase {
 public:
  struct Inputs {
    Vars rows;      // of this rank's samples, from number `first` on, and of all samples where nothing is divided
    Vars shared;    // equal on every rank, such as a temperature
    int64_t first;  // sample's number in the whole batch
    int64_t total;  // samples in the whole batch
  };
  struct Drawn {
    std::vector<Shape> rows;         // of one sample's part of each input
    std::vector<Shape> shared = {};  // of each input that all ranks have
    double low = -1, high = 1;       // uniformly
    int64_t samples = 10;
  };

  const std::string name;
  const std::string variant;  // such as the way in which features travel
  const Drawn drawn;
  const std::function<Var(const Inputs&, Communicator&)> share;  // this rank's share of the loss
  const std::function<Var(const Inputs&)> whole;                 // the loss as papers write it, by plain operations
  const DistributedCase distributed;

  // `orders` as in DistributedCase.
  LossCase(std::string name, std::string variant, Drawn drawn, decltype(share) share, decltype(whole) whole,
           int orders = 2);
  ~LossCase();
  LossCase(const LossCase&) = delete;
  LossCase& operator=(const LossCase&) = delete;

  // How many samples each of so many ranks has: different numbers, and none for some rank of any three.
  Rows division(int ranks) const;
  Inputs inputs(std::span<const Var> rows, std::span<const Var> shared, int rank, int ranks) const;

  static const std::vector<const LossCase*>& all();
};

}  // namespace weft
