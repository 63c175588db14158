#pragma once
// How an op puts itself on the tape: one pullback per input, each written with differentiable functions.
//
//   return record(mul_op, product(a.value(), b.value()),
//                 from(a, [=](const Var& g) { return g * b; }),
//                 from(b, [=](const Var& g) { return g * a; }));
//
// A pullback that takes (g, y) is also given the op's output. What a lambda captures is what the op saves for backward;
// it is dropped at once if the input needs no gradient, and released when backward has passed.
#include "engine/tape.h"

namespace weft {

template <class F> struct From {
  const Var& input;
  F pullback;
};
template <class F> From<F> from(const Var& input, F pullback) { return {input, std::move(pullback)}; }

// The longer form, for ops whose number of inputs is known only at run time.
class Recording {
 public:
  Recording(const Op& op, Tensor value, std::span<const Var* const> inputs);
  template <class F> void add(const Var& input, F&& pullback);
  Var finish() { return std::move(output_); }

 private:
  template <class F> struct Plain;
  template <class F> struct WithOutput;
  void link(Tape::Pullback* pullback);

  Var output_;
  Tape::Pullback* last_ = nullptr;
  bool active_ = false, always_ = false;
};

template <class... F> Var record(const Op& op, Tensor value, From<F>... pullbacks) {
  const Var* inputs[] = {&pullbacks.input...};
  Recording node(op, std::move(value), inputs);
  (node.add(pullbacks.input, std::move(pullbacks.pullback)), ...);
  return node.finish();
}

template <class F> struct Recording::Plain final : Tape::Pullback {
  F pullback;
  Plain(int input, F&& f) : Pullback(input), pullback(std::move(f)) {}
  Var apply(const Var& g) override { return pullback(g); }
};
template <class F> struct Recording::WithOutput final : Tape::Pullback {
  F pullback;
  Var output;
  WithOutput(int input, F&& f, const Var& output) : Pullback(input), pullback(std::move(f)), output(output) {}
  Var apply(const Var& g) override { return pullback(g, output); }
};

template <class F> void Recording::add(const Var& input, F&& pullback) {
  if (!active_ || !(input.tracked() || always_)) return;
  if constexpr (std::is_invocable_v<F&, const Var&, const Var&>) {
    static_assert(sizeof(WithOutput<F>) <= Arena::chunk_bytes);
    link(new (output_.tape()->arena_.take(sizeof(WithOutput<F>)))
             WithOutput<F>(input.id_, std::move(pullback), output_));
  } else {
    static_assert(sizeof(Plain<F>) <= Arena::chunk_bytes);
    link(new (output_.tape()->arena_.take(sizeof(Plain<F>))) Plain<F>(input.id_, std::move(pullback)));
  }
}

}  // namespace weft
