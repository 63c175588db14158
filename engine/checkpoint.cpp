// Activation checkpointing: a node that saves its inputs only and is recorded again when backward reaches it.
#include "engine/ops/elementwise.h"
#include "engine/tape.h"

namespace weft {

static const Op checkpoint_op{"checkpoint",
                              {{"", {{2, 3}, {2, 3}}, [](auto x) {
                                  return checkpoint([](auto v) { return exp(v[0]) * v[1]; }, {x[0], x[1]});
                                }}}};
// A piece with a collective in it replays wherever the collective alone would.
static const Op collective_checkpoint_op{"checkpoint of a collective", checkpoint_op.samples, Algebra::nonlinear,
                                         Replay::always};

Var checkpoint(PooledFunction<Var(std::span<const Var>)> f, Vars inputs) {
  Tape* tape = nullptr;
  for (const Var& x : inputs) tape = x.tape() ? x.tape() : tape;
  if (!tape || !tape->recording_) return f(inputs);

  struct Piece final : Tape::Pullback {
    decltype(f) run;
    Vars inputs;
    Piece(decltype(f) run, Vars inputs) : Pullback(-1), run(std::move(run)), inputs(std::move(inputs)) {}
    Var apply(const Var&) override { return run(inputs); }
  };
  const bool skipped_before = std::exchange(tape->replay_skipped_, false);
  Var once;
  {
    const Tape::Pause pause(tape);
    once = f(inputs);
  }
  const Tensor& value = once.value();
  const Op& op = tape->replay_skipped_ ? collective_checkpoint_op : checkpoint_op;
  tape->replays_ = tape->replays_ || tape->replay_skipped_;
  tape->replay_skipped_ = skipped_before;
  tape->must_be_usable(op.name.c_str());
  auto* piece = new (tape->arena_.take(sizeof(Piece))) Piece(std::move(f), std::move(inputs));
  tape->nodes_.push_back(
      {&op, nullptr, piece, Tape::Kind::checkpoint, value.dtype(), value.device(), once.spreads(), value.shape()});
  return Var(tape, static_cast<int>(tape->nodes_.size()) - 1, value, once.spreads());
}

}  // namespace weft
