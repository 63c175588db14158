// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: nodes that save their inputs only and are recorded again when backward reaches them.
#include "weft/engine/ops/activation_checkpoint.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tensor/origin.h"

namespace weft {

static const Op checkpoint_op{
    "checkpoint",
    {{"",
      {{2, 3}, {2, 3}},
      [](auto x) {
        return checkpoint([](auto v) { return exp(v[0]) * v[1]; }, {x[0], x[1]});
      }},
     {"several results",
      {{2, 3}, {2, 3}},
      [](auto x) {
        const Vars y = checkpoint([](auto v) { return Vars{exp(v[0]) * v[1], v[0], square(v[1])}; }, {x[0], x[1]});
        return y[0] * y[1] + y[2];
      }},
     {"some of several results", {{2, 3}, {2, 3}}, [](auto x) {
        return square(checkpoint([](auto v) { return Vars{exp(v[0]), v[0] * v[1], v[1]}; }, {x[0], x[1]})[1]);
      }}}};
// A checkpoint of a function with a collective always runs in backward, as the collective alone would.
static const Op collective_checkpoint_op{"checkpoint of a collective", checkpoint_op.samples, Algebra::nonlinear,
                                         Replay::always};

Vars checkpoint(PooledFunction<Vars(std::span<const Var>)> f, Vars inputs) {
  Tape* tape = nullptr;
  for (const Var& x : inputs) tape = x.tape() ? x.tape() : tape;
  if (!tape || !tape->mode_.recording) return f(inputs);

  const bool skipped_before = std::exchange(tape->replay_skipped_, false);
  Vars results;
  {
    const Tape::Pause pause(tape);
    results = f(inputs);
  }
  require(!results.empty(), "checkpoint: the piece has no results");
  const Op& op = tape->replay_skipped_ ? collective_checkpoint_op : checkpoint_op;
  tape->replays_ = tape->replays_ || tape->replay_skipped_;
  tape->replay_skipped_ = skipped_before;
  tape->require_usable(op.name.c_str());
  Tape::Pullback* piece = new (tape->arena_.place_for<Tape::Piece>())
      Tape::Piece(std::move(f), std::move(inputs), static_cast<int>(results.size()), *tape);
  for (Var& result : results) {
    Tensor value = result.value();
    tape->nodes_.push_back({&op, nullptr, std::exchange(piece, nullptr), result.placements(), Tape::Kind::checkpoint,
                            value.dtype(), value.device(), value.shape()});
    const bool tracked = value.defined() && is_floating(value.dtype());
    Origin::set(value, {tracked ? tape->number_ : 0});
    result = Var(tape->slot_, tracked ? static_cast<int>(tape->nodes_.size()) - 1 : -1, value, result.placements());
  }
  return results;
}

Var checkpoint(PooledFunction<Var(std::span<const Var>)> f, Vars inputs) {
  return checkpoint([f = std::move(f)](std::span<const Var> x) { return Vars{f(x)}; }, std::move(inputs))[0];
}

}  // namespace weft
