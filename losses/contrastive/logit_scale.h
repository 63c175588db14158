// SPDX-License-Identifier: Apache-2.0
#pragma once
// The learnable factor of the scores of CLIP and SigLIP, an inverse temperature. The parameter is its logarithm, which
// `limit` clamps after every step.
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

class LogitScale final : public Module {
 public:
  struct Range {
    double initial = 1 / 0.07;  // as CLIP; SigLIP begins at 10
    double least = 1, most = 100;
  };
  LogitScale(const std::string& name, const Init& init, const Range& range);
  LogitScale(const std::string& name, const Init& init) : LogitScale(name, init, Range()) {}

  Parameter log_scale;

  Var operator()(const Var& features) const;  // the factor, on the tape and of the placement of `features`
  void limit();                               // clamps the scale; call it after the optimizer's step

 private:
  const double log_min_, log_max_;
};

}  // namespace weft
