// SPDX-License-Identifier: Apache-2.0
#pragma once
// How an op records itself on the tape: with one pullback per input, each written with differentiable functions.
//
//   return record(mul_op, product(a.value(), b.value()),
//                 from(a, [=](const Var& g) { return g * b; }),
//                 from(b, [=](const Var& g) { return g * a; }));
//
// A pullback that takes (g, y) also gets the op's output. The captures of a pullback are the tensors that the op saves
// for backward. They are freed at once if the input needs no gradient, otherwise after backward has run the pullback.
// Inputs without a pullback, data(indices), come last; they too decide the placements of the result.
#include "weft/engine/tape/tape.h"

namespace weft {

template <class F> struct From {
  const Var& input;
  F pullback;
};
template <class F> From<F> from(const Var& input, F pullback) { return {input, std::move(pullback)}; }

struct Data {
  const Var& input;
};
inline Data data(const Var& input) { return {input}; }

// The longer form, for ops whose number of inputs is known only at run time.
class Recording {
 public:
  // The first `terms` inputs have pullbacks; the others are data.
  Recording(const Op& op, Tensor value, std::span<const Var* const> inputs, size_t terms);
  template <class F> void add(const Var& input, F&& pullback);
  template <class F> void add(From<F>&& term) { add(term.input, std::move(term.pullback)); }
  void add(Data) {}
  Var finish() { return std::move(output_); }
  static Tensor place_of_term(const Var& x, const Var* input, const Shape& shape);

 private:
  template <class F> struct Plain;
  template <class F> struct WithOutput;
  struct Inputs;
  void add_node(const Op& op, const Tensor& value, Tape& tape);
  void set_origin(const Inputs& common, bool recording, std::span<const Var* const> terms);
  void notify_observers(const Op& op, std::span<const Var* const> inputs) const;
  [[noreturn]] static void reject(const Op& op, std::span<const Var* const> inputs, size_t number);
  void link(Tape::Pullback* pullback);
  Tape& tape() const { return *output_.slot_->tape; }

  Var output_;
  Tape::Pullback* last_ = nullptr;
  bool active_ = false, always_ = false;
};

// Memory for a result of an op of x, with values not set. In a pullback, the first term of a parameter's gradient gets
// the place of the sum, so that it need not be copied there.
Tensor memory_for_result(const Var& x, const Shape& shape);
// The same for the gradient of an input, computed beside those of others.
Tensor memory_for_gradient(const Var& input);

template <class... Input> Var record(const Op& op, Tensor value, Input... inputs) {
  const Var* all[] = {&inputs.input...};
  Recording node(op, std::move(value), all, (size_t{!std::is_same_v<Input, Data>} + ...));
  (node.add(std::move(inputs)), ...);
  return node.finish();
}

// A pullback of g alone, or of g and the op's own output: `add` sees which, by how it can be called.
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
  if constexpr (std::is_invocable_v<F&, const Var&, const Var&>)
    link(new (tape().arena_.place_for<WithOutput<F>>()) WithOutput<F>(input.id_, std::move(pullback), output_));
  else
    link(new (tape().arena_.place_for<Plain<F>>()) Plain<F>(input.id_, std::move(pullback)));
}

}  // namespace weft
