// SPDX-License-Identifier: Apache-2.0
#pragma once
// The interface of all quantizers. A quantizer replaces vectors, called tokens, by the nearest ones of a set of codes.
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/module.h"
#include "weft/losses/common/loss_call.h"

namespace weft {

struct Quantized {
  Var values;   // of x's shape and type; their gradients pass through to x
  Var indices;  // i64: the number of each token's code; with several quantizers per token, these are the last axis
  Var loss;     // this rank's share of the loss to add to the objective: a scalar, Partial; zero outside of training
};

class Quantizer : public Module {
 public:
  explicit Quantizer(const char* kind) : kind_(kind) {}  // errors name the kind

  // x is (samples, ..., dim), and every vector along the last axis is a token. Tokens whose `mask` (samples, ...; u8)
  // is zero pass unchanged, have index -1, and do not count in losses and statistics. In training all ranks of the
  // group take part, even those without tokens. Random choices are keyed by pass.key and the token's global number.
  Quantized operator()(const Var& x, const Pass& pass, Communicator& comm, const Var& mask = {},
                       Site caller = Site::here());

  // The codes with these indices: equal to `values`, but without a gradient to x.
  Var decode(const Var& indices, Site caller = Site::here());

  // Adds up over ranks what `update` needs of the tokens; without this call it does so itself. After the passes of a
  // step but before the last backward, it spares `update` a wait for a card.
  void add_up(Communicator& comm, Site caller = Site::here());

  // Updates the state that is not learnt by gradients, from the tokens of all ranks and passes since the last update;
  // call it after the passes of a training step. The result is bit-identical on every rank.
  void update(Communicator& comm, const Random& key, Site caller = Site::here());

 protected:
  LossCall call_from(const Site& caller) const { return LossCall(kind_, caller); }
  // The four calls above, for a quantizer that contains the quantizer q. `caller` is its own caller.
  static Quantized part(Quantizer& q, const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller);
  static Var decoded_part(Quantizer& q, const Var& indices);
  static void add_up_part(Quantizer& q, Communicator& comm, Site caller);
  static void update_part(Quantizer& q, Communicator& comm, const Random& key, Site caller);

 private:
  virtual Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) = 0;
  virtual Var decoded(const Var& indices) = 0;
  virtual void count(Communicator&, Site) {}
  virtual void learn(Communicator&, const Random&, Site) {}

  const char* const kind_;
};

}  // namespace weft
