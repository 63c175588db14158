// SPDX-License-Identifier: Apache-2.0
#pragma once
// What every training measures of itself beside its loss: the norm of its gradients, and its loss of pictures that it
// does not train. With both a user sees whether steps are too large, and whether more steps still help.
#include "apps/shared/run/run.h"
#include "weft/data/pictures.h"
#include "weft/optim/training.h"

namespace weft {

class LossWatch {
 public:
  static constexpr const char *norm_name = "gradient norm", *loss_name = "validation loss";

  // Every n-th of the test pictures, as many as a batch has if there are so many, and the same ones each time. None if
  // there are no test pictures.
  LossWatch(const Pictures& data, int64_t batch);
  // Their views and draws should be the same each time, too: those of a step that no run has, such as -1.
  const std::vector<int64_t>& held_out() const { return held_out_; }

  // The norm to ask of the step that is to be told to `run` next: when it is looked at, or when clipping needs it.
  Training::Norm norm(const Run& run) const {
    return run.watches() ? Training::Norm::always : Training::Norm::if_needed;
  }
  // Adds to what is measured after that step. `loss` computes the loss of the pictures that are held out.
  std::vector<Measured> look(Run& run, std::optional<double> norm, const std::function<double()>& loss,
                             std::vector<Measured> values) const;

 private:
  const std::vector<int64_t> held_out_;
};

}  // namespace weft
