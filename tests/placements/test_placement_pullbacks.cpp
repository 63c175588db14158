// SPDX-License-Identifier: Apache-2.0
// Placements in recorded pullbacks, for masks, indices and constants that ops create or are given.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/ops.h"

using namespace weft;

namespace test_placement_pullbacks {

using namespace placement_letters;

// Whether an op's masks and indices are equal on all ranks or this rank's own.
struct Given {
  Tape& tape;
  int rank;
  bool own;

  Var operator()(const Tensor& x) const { return own ? tape.constant(x) : replicated_constant(x); }
  int drawn() const { return own ? rank : 0; }
  Var mask() const { return (*this)(less(data_of(drawn(), {3, 4}, 7), data_of(drawn(), {3, 4}, 8))); }
  Var indices(const Shape& shape) const {
    std::vector<double> values;
    for (int64_t i = 0; i < shape.size(); ++i) values.push_back(static_cast<double>((2 * i + drawn()) % 3));
    return (*this)(Tensor::from(shape, values, DType::i64));
  }
};

// Ops on a (3, 4) matrix. Each creates a tensor in its forward or in a pullback.
using Call = Var (*)(const Var& x, const Given& given);
const std::pair<const char*, Call> calls[] = {
    {"where", [](auto& x, auto& given) { return where(given.mask(), x, sin(x)); }},
    {"gather_rows",
     [](auto& x, auto& given) {
       return gather_rows(x, given.indices({2, 2}));
     }},
    {"scatter_add_rows", [](auto& x, auto& given) { return scatter_add_rows(x, given.indices({3}), 4); }},
    {"take_along",
     [](auto& x, auto& given) {
       return take_along(x, given.indices({3, 2}), 1);
     }},
    {"put_along",
     [](auto& x, auto& given) {
       return put_along(x, given.indices({3, 4}), 0, 3);
     }},
    {"one_hot", [](auto& x, auto& given) { return matmul(one_hot(given.indices({2}), 3, DType::f64), x); }},
    {"cross_entropy", [](auto& x, auto& given) { return cross_entropy(x, given.indices({3})); }},
    {"dropout",
     [](auto& x, auto&) {
       return dropout(x, 0.4, {3, 1});
     }},
    {"maximum", [](auto& x, auto&) { return maximum(x, sin(2 * x)); }},
    {"minimum", [](auto& x, auto&) { return minimum(square(x), x + 0.25); }},
    {"max", [](auto& x, auto&) { return max(x, 1); }},
    {"min of all", [](auto& x, auto&) { return min(sin(x)); }},
    {"prod", [](auto& x, auto&) { return prod(x, 0); }},
    {"norm", [](auto& x, auto&) { return norm(x, 1); }},
    {"log_sum_exp", [](auto& x, auto&) { return log_sum_exp(x, 0); }},
    {"top_k", [](auto& x, auto&) { return top_k(x, 2).values; }},
    {"top_k's indices", [](auto& x, auto&) { return take_along(sin(x), top_k(x, 2).indices, 1); }},
    {"sort", [](auto& x, auto&) { return sort(x, 0).values * sort(sin(x), 0).values; }},
    {"sum_outside", [](auto& x, auto&) { return sum_outside(square(x), 1); }},
    {"add_along", [](auto& x, auto&) { return add_along(x, sum(x, 0), 1); }},
    {"cumulative_sum", [](auto& x, auto&) { return cumulative_sum(x, 0); }},
    {"standardize", [](auto& x, auto&) { return standardize(x); }},
    {"layer_norm", [](auto& x, auto&) { return layer_norm(x, sum(x, 0), sum(sin(x), 0), 0.1, {Unary::Relu, {}}); }},
    {"l2_normalize", [](auto& x, auto&) { return l2_normalize(x); }},
    {"softmax", [](auto& x, auto&) { return softmax(x, 0); }},
    {"log_softmax", [](auto& x, auto&) { return log_softmax(x); }},
    {"variance", [](auto& x, auto&) { return variance(x, 0); }},
    {"pad with a value", [](auto& x, auto&) { return pad(x, 0, 1, 1, 0.5); }},
    {"clamp", [](auto& x, auto&) { return clamp(x, -0.4, 0.4); }},
    {"detach", [](auto& x, auto&) { return x * detach(sin(x)); }},
    {"straight_through", [](auto& x, auto&) { return straight_through(round(2 * x), sin(x)); }},
    {"max_pool2d", [](auto& x, auto&) {
       return max_pool2d(reshape(x, {1, 3, 4, 1}), {2, 2}, {.padding = {1, 1}});
     }}};

TEST_CASE("second derivatives of a Replicated value are right through every op that creates or takes a tensor") {
  for (const auto& [name, call] : calls)
    for (const bool own : {false, true}) {
      INFO(name << (own ? ", each rank its own" : ", the same everywhere"));
      on_ranks({1, 2, 3}, [&, call = call](Communicator& comm) {
        const Parameter w("w", data_of(0, {3, 4}));
        const auto share = [&](Tape& tape, int r) {
          return sum(square(call(tape.watch(w), {tape, r, own}))) * tape.constant(scalar(r + 1));
        };
        Gradients whole, grads;
        Tape one, tape;
        const Var all = total(comm, [&](int r) { return share(one, r); });
        one.backward(all + sum(square(one.gradient(all, {one.watch(w)}, Graph::create)[0])), whole);

        const Var loss = all_reduce(share(tape, number(comm)), comm);
        const Var part = tape.gradient(loss, {tape.watch(w)}, Graph::create)[0];
        expect(placement_of(part, comm) == P, "the gradient is " + text(placement_of(part, comm)));
        tape.backward(loss + sum(square(all_reduce(part, comm))), grads);
        expect_close(comm.all_reduce(grads[w]), whole[w]);
      });
    }
}

TEST_CASE("a Replicated computation has one process's gradients, to second order, with no collectives but sums") {
  for (const auto& [name, call] : calls) {
    INFO(name);
    on_ranks({1, 2, 3}, [&, call = call](Communicator& comm) {
      const Parameter w("w", data_of(0, {3, 4}));
      const auto alike = [&](Tape& tape) { return sum(square(call(tape.watch(w), {tape, 0, false}))); };
      Gradients whole, grads;
      Tape one, tape;
      one.backward(alike(one) + sum(square(one.gradient(alike(one), {one.watch(w)}, Graph::create)[0])), whole);
      declare_group(tape, comm);
      const Var loss = alike(tape), slope = tape.gradient(loss, {tape.watch(w)}, Graph::create)[0];
      expect(placement_of(loss, comm) == R, "the loss is " + text(placement_of(loss, comm)));
      tape.backward(loss + sum(square(all_reduce(slope, comm))), grads);
      expect_close(comm.all_reduce(grads[w]), whole[w]);
    });
  }
}

TEST_CASE("an Invariant value stays Invariant in the pullbacks of every op with Replicated inputs") {
  for (const auto& [name, call] : calls) {
    INFO(name);
    on_ranks({1, 2, 3}, [&, call = call](Communicator& comm) {
      Tape one, tape;
      const Var x = tape.watch(data_of(number(comm), {3, 4})), equal = all_reduce_equal(x, comm);
      const Var y = one.watch(x.value());
      const Var sums = total(comm, [&](int r) { return r == number(comm) ? y : one.constant(data_of(r, {3, 4})); });
      const auto slope = [&](Tape& on, const Var& of) {
        return on.gradient(sum(square(call(of, {on, 0, false}))), {of}, Graph::create)[0];
      };
      const Var recorded = slope(tape, equal);
      expect(placement_of(recorded, comm) == I, "the gradient is " + text(placement_of(recorded, comm)));
      expect_close(tape.gradient(sum(square(recorded)), {x})[0], one.gradient(sum(square(slope(one, sums))), {y})[0]);
    });
  }
}

TEST_CASE("a mask computed from two values has their joint placement") {
  run_ranks(2, [](Communicator& comm) {
    Tape tape;
    const Parameter w("w", data_of(0, {3}));
    const Var u = tape.watch(w), x = tape.watch(data_of(number(comm), {3}));
    declare_group(tape, comm);
    expect(placement_of(where(constant_like(less(u.value(), x.value()), x), u, u * 2), comm) == V,
           "constant_like from x");
    expect(placement_of(where(constant_like(less(u.value(), square(u).value()), u), u, u * 2), comm) == R,
           "constant_like from u");
    expect(placement_of(straight_through(x, u), comm) == V, "the value of x, the gradient to u");
  });
}

}  // namespace test_placement_pullbacks
