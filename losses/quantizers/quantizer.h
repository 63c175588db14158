#pragma once
// What all quantizers are: they replace vectors by the nearest of a set of codes.
#include "collectives/communicator.h"
#include "engine/nn/module.h"

namespace weft {

struct Quantized {
  Var values;   // like x; gradients go through to x
  Var indices;  // i64: which code each token became; for several quantizers of a token, a last axis counts them
  Var loss;     // this rank's share of what is added to the objective: a scalar, Partial; zero outside of training
};

class Quantizer : public Module {
 public:
  // x is (samples, ..., dim): every vector along the last axis is a token. Tokens whose `mask` (samples, ...; u8) is
  // zero pass unchanged, have index -1, and count nowhere: not in losses, not in statistics. In training all ranks of
  // the group take part, also those without tokens. Random choices are keyed by pass.key and the token's global number.
  virtual Quantized operator()(const Var& x, const Pass& pass, Communicator& comm, const Var& mask = {}) = 0;

  // The vectors that indices stand for: what `values` was, but without a gradient to x.
  virtual Var decode(const Var& indices) = 0;

  // After the passes of a training step: what is learnt otherwise than by gradients, from all tokens of all ranks and
  // passes since the last update. The same bits on every rank.
  virtual void update(Communicator&, const Random&) {}
};

}  // namespace weft
