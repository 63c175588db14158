#pragma once
// The learnable factor of the scores of CLIP and SigLIP, an inverse temperature. It is learnt by its logarithm, and
// kept within limits after every step.
#include "engine/nn/init.h"
#include "engine/nn/module.h"

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

  Var operator()(const Var& features) const;  // the factor, beside features
  void limit();                               // to be called after the optimizer's step

 private:
  const double least_, most_;  // of the logarithm
};

}  // namespace weft
