#pragma once
// What all quantizers are: they replace vectors by the nearest of a set of codes.
#include "collectives/communicator.h"
#include "engine/nn/module.h"
#include "losses/loss_call.h"

namespace weft {

struct Quantized {
  Var values;   // like x; gradients go through to x
  Var indices;  // i64: which code each token became; for several quantizers of a token, a last axis counts them
  Var loss;     // this rank's share of what is added to the objective: a scalar, Partial; zero outside of training
};

class Quantizer : public Module {
 public:
  explicit Quantizer(const char* kind) : kind_(kind) {}  // which errors name

  // x is (samples, ..., dim): every vector along the last axis is a token. Tokens whose `mask` (samples, ...; u8) is
  // zero pass unchanged, have index -1, and count nowhere: not in losses, not in statistics. In training all ranks of
  // the group take part, also those without tokens. Random choices are keyed by pass.key and the token's global number.
  Quantized operator()(const Var& x, const Pass& pass, Communicator& comm, const Var& mask = {},
                       Site caller = Site::here());

  // The vectors that indices stand for: what `values` was, but without a gradient to x.
  Var decode(const Var& indices, Site caller = Site::here());

  // After the passes of a training step: what is learnt otherwise than by gradients, from all tokens of all ranks and
  // passes since the last update. The same bits on every rank.
  void update(Communicator& comm, const Random& key, Site caller = Site::here());

 protected:
  LossCall call_from(const Site& caller) const { return LossCall(kind_, caller); }
  // The above, of a quantizer that another is made of, by the caller of that one.
  static Quantized part(Quantizer& q, const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller);
  static Var decoded_part(Quantizer& q, const Var& indices);
  static void update_part(Quantizer& q, Communicator& comm, const Random& key, Site caller);

 private:
  virtual Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) = 0;
  virtual Var decoded(const Var& indices) = 0;
  virtual void learn(Communicator&, const Random&, Site) {}

  const char* const kind_;
};

}  // namespace weft
