// SPDX-License-Identifier: Apache-2.0
// Plain tensors among placed values: where a placement must be stated, and that the gradient is then right.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/nn/embedding.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/ops.h"

using namespace weft;

namespace {

using namespace placement_letters;
const char *own_or_equal = "give tape.constant(x) for a rank's own values, replicated_constant(x) for equal ones",
           *loss_unsaid = "the placement of the loss is unknown over ranks {0, 1}; a plain Tensor went into it";

Tensor i64(const Shape& shape, const std::vector<double>& values) { return Tensor::from(shape, values, DType::i64); }
Tensor numbers_of(int rank, int64_t count, int limit) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((i + rank) % limit));
  return i64({count}, values);
}
Tensor mask_of(int rank, const Shape& shape) { return less(data_of(rank, shape, 7), data_of(rank, shape, 8)); }

// `values` with the placement that a user states.
Var said(Tape& tape, Communicator& comm, Placement placement, const Tensor& values) {
  if (placement == unknown) return values;
  return placement == C ? replicated_constant(values) : with_placement(tape.constant(values), comm, placement);
}

// Ops on a (2, 2) matrix that take a mask, indices or targets.
using Told = Var (*)(const Var& x, const Var& mask, const Var& indices);
const std::pair<const char*, Told> told[] = {
    {"where", [](auto& x, auto& m, auto&) { return where(m, x, x * 2); }},
    {"gather_rows", [](auto& x, auto&, auto& i) { return gather_rows(x, i); }},
    {"scatter_add_rows", [](auto& x, auto&, auto& i) { return scatter_add_rows(x, i, 3); }},
    {"embedding", [](auto& x, auto&, auto& i) { return embedding(x, i); }},
    {"take_along",
     [](auto& x, auto&, auto& i) {
       return take_along(x, reshape(i, {1, 2}), 0);
     }},
    {"put_along",
     [](auto& x, auto&, auto& i) {
       return put_along(slice(x, 0, 0, 1), reshape(i, {1, 2}), 0, 2);
     }},
    {"one_hot", [](auto& x, auto&, auto& i) { return x * one_hot(i, 2, DType::f64); }}};

}  // namespace

TEST_CASE("results of ops with masks or indices have the joint placement of all inputs") {
  const std::tuple<Placement, Placement, Placement> rows[] = {{R, C, R},
                                                              {R, R, R},
                                                              {R, V, V},
                                                              {V, C, V},
                                                              {V, R, V},
                                                              {V, V, V},
                                                              {V, unknown, V},
                                                              {R, unknown, unknown},
                                                              {unknown, V, V},
                                                              {I, C, I},
                                                              {I, I, I},
                                                              {P, C, P},
                                                              {P, R, P},
                                                              {C, C, C},
                                                              {C, V, V},
                                                              {C, unknown, unknown},
                                                              {unknown, R, unknown}};
  run_ranks(2, [&](Communicator& comm) {
    for (const auto& [of, by, result] : rows)
      for (const auto& [name, call] : told) {
        Tape tape;
        const Var x = with_placement(tape.watch(data_of(0, {2, 2})), comm, of);
        const Var y = call(x, said(tape, comm, by, mask_of(0, {2, 2})), said(tape, comm, by, numbers_of(0, 2, 2)));
        expect(placement_of(y, comm) == result,
               name + (" of " + text(of)) + " by " + text(by) + " is " + text(placement_of(y, comm)));
      }
  });
}

TEST_CASE("a cross entropy has the joint placement of logits and targets") {
  const std::tuple<Placement, Placement, Placement> rows[] = {{R, C, R}, {R, V, V}, {R, unknown, unknown},
                                                              {V, C, V}, {I, C, I}, {V, unknown, V}};
  run_ranks(2, [&](Communicator& comm) {
    for (const auto& [of, by, result] : rows) {
      Tape tape;
      const Var x = with_placement(tape.watch(data_of(0, {2, 2})), comm, of);
      const Var y = cross_entropy(x, said(tape, comm, by, numbers_of(0, 2, 2)));
      expect(placement_of(y, comm) == result, text(of) + " by " + text(by) + " is " + text(placement_of(y, comm)));
    }
  });
}

TEST_CASE("an unknown placement is refused where it matters, with advice") {
  using Call = Var (*)(const Var&, const Tensor&, Communicator&);
  struct Row {
    Placement placement;
    Call call;
    std::vector<const char*> said;
  };
  const Row rows[] = {
      {P,
       [](auto& x, auto& t, auto&) { return x + t; },
       {"add: input 2, which is unknown", own_or_equal, "would be added once per rank to a Partial one"}},
      {P, [](auto& x, auto& t, auto&) { return x * t; }, {"mul: input 2, which is unknown", own_or_equal}},
      {P,
       [](auto& x, auto& t, auto&) { return x + replicated_constant(t); },
       {"add: input 2, which is Constant, would be added once per rank"}},
      {P,
       [](auto& x, auto& t, auto&) { return where(less(t, t), x, x); },
       {"where: input 3, which is unknown", "would treat each rank's part of a Partial input in its own way"}},
      {P,
       [](auto& x, auto& t, auto&) { return where(x.tape()->constant(less(t, t)), x, x); },
       {"where: input 3, which is Varying, would treat each rank's part"}},
      {P,
       [](auto& x, auto&, auto&) { return gather_rows(x, Tensor::arange(1)); },
       {"gather_rows: input 2, which is unknown", own_or_equal}},
      {P,
       [](auto& x, auto&, auto&) { return scatter_add_rows(x, x.tape()->constant(Tensor::arange(2)), 2); },
       {"scatter_add_rows: input 2, which is Varying, would treat each rank's part"}},
      {I, [](auto& x, auto& t, auto&) { return x * t; }, {"mul: input 2, which is unknown", own_or_equal, "Invariant"}},
      {I,
       [](auto& x, auto&, auto&) { return embedding(x, Tensor::arange(1)); },
       {"gather_rows: input 2, which is unknown", "meets an Invariant one"}},
      {I,
       [](auto& x, auto&, auto&) { return cross_entropy(x, x.tape()->constant(Tensor::arange(2))); },
       {"cross_entropy: input 2, which is Varying, meets an Invariant one"}},
      {R,
       [](auto& x, auto& t, auto& comm) { return all_reduce(x * t, comm); },
       {"all_reduce: its input is unknown over", "Partial or Varying is needed", own_or_equal}},
      {R,
       [](auto& x, auto& t, auto& comm) { return all_gather(square(x) - t, comm); },
       {"all_gather: its input is unknown over", own_or_equal}},
      {R,
       [](auto& x, auto& t, auto& comm) { return keep_on(x * t, {0}, comm); },
       {"keep_on: its input is unknown over", own_or_equal}}};
  run_ranks(2, [&](Communicator& comm) {
    for (const Row& row : rows)
      for (const char* part : row.said) {
        Tape tape;
        const Var x = with_placement(tape.watch(data_of(0, {2, 2})), comm, row.placement);
        expect_refusal([&] { row.call(x, data_of(0, {2, 2}, 1), comm); }, {part});
      }
  });
}

TEST_CASE("a loss with unknown placement needs an explicit seed") {
  run_ranks(2, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {3, 2}));
    Tape tape;
    const Var u = tape.watch(w),
              losses[] = {sum(u * data_of(0, {3, 2}, 1)), sum(embedding(u, numbers_of(0, 2, 3))),
                          sum(where(mask_of(0, {3, 2}), u, u * 2)), sum(cross_entropy(u, numbers_of(0, 3, 2)))};
    declare_group(tape, comm);
    Gradients grads;
    for (const Var& loss : losses) {
      expect_refusal([&] { tape.backward(loss, grads, Keep::tape); }, {"backward: ", loss_unsaid, "or pass a seed"});
      expect_refusal([&] { tape.gradient(loss, {u}); }, {"gradient: ", loss_unsaid});
      tape.gradient(loss, Var(scalar(1)), {u});
      tape.backward(as_varying(loss, comm), grads, Keep::tape);
      tape.backward(as_replicated(loss, comm), grads, Keep::tape);
    }
  });
}

TEST_CASE("placements are not needed without a group of ranks") {
  const Parameter w("w", data_of(0, {3, 2}));
  const Tensor x = data_of(0, {3, 2}, 1);
  Gradients grads;
  Tape tape;
  tape.backward(sum(where(mask_of(0, {3, 2}), tape.watch(w) * x, x)) + sum(embedding(tape.watch(w), i64({1}, {2}))),
                grads);
  CHECK(grads.has(w));
}

TEST_CASE("rank-dependent and Replicated indices, masks and targets give one process's gradient") {
  using Share = Var (*)(const Var& table, const Var& tokens, const Var& mask, const Var& targets);
  const Share shares[] = {
      [](auto& t, auto& i, auto&, auto&) { return sum(square(embedding(t, i))); },
      [](auto& t, auto&, auto& m, auto&) { return sum(where(m, square(t), sin(t))); },
      [](auto& t, auto&, auto&, auto& c) { return sum(cross_entropy(t, c)); },
      [](auto& t, auto& i, auto& m, auto& c) { return sum(cross_entropy(where(m, embedding(t, i), t), c)); }};
  on_ranks([&](Communicator& comm) {
    for (const Share share : shares)
      for (const bool own : {false, true}) {
        const Parameter w("w", data_of(0, {4, 3}));
        const auto share_of = [&](Tape& tape, int rank) {
          const auto give = [&](const Tensor& x) { return own ? tape.constant(x) : replicated_constant(x); };
          const int r = own ? rank : 0;
          return share(tape.watch(w), give(numbers_of(r, 4, 4)), give(mask_of(r, {4, 3})), give(numbers_of(r, 4, 3)));
        };
        Gradients whole, grads;
        Tape one, tape;
        one.backward(total(0, own ? comm.size() : 1, [&](int r) { return share_of(one, r); }), whole);
        declare_group(tape, comm);
        const Var loss = share_of(tape, number(comm));
        expect(placement_of(loss, comm) == (own ? V : R), "the loss is " + text(placement_of(loss, comm)));
        tape.backward(loss, grads);
        expect_close(comm.all_reduce(grads[w]), whole[w]);
      }
  });
}

TEST_CASE("the result of an Embedding layer has the placement of its tokens") {
  run_ranks(2, [](Communicator& comm) {
    Embedding table("table", 4, 2, {.key = {1, 1}});
    Tape tape;
    const Var tokens = tape.constant(numbers_of(number(comm), 3, 4));
    expect(placement_of(table(tokens), comm) == V, "tokens of its own");
    expect(placement_of(table(with_placement(tokens, comm, R)), comm) == R, "tokens that all ranks have");
  });
}

TEST_CASE("the result of a BatchNorm has the placement of its input") {
  run_ranks(2, [](Communicator& comm) {
    BatchNorm norm("norm", 2, {.key = {}, .dtype = DType::f64});
    Tape tape;
    const Var own = tape.watch(data_of(number(comm), {4, 2})), all = all_reduce(own, comm);
    for (const bool training : {true, false}) {
      expect(placement_of(norm(own, {.training = training}), comm) == V, "of a rank's own");
      expect(placement_of(norm(all, {.training = training}), comm) == R, "of everybody's");
    }
  });
}

TEST_CASE("a loss of parameters alone counts once over a group that the tape knows") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    for (const bool told_of : {false, true}) {
      Gradients grads;
      Tape tape;
      if (told_of) declare_group(tape, comm);
      tape.backward(sum(square(tape.watch(w))), grads);
      expect_close(told_of ? comm.all_reduce(grads[w]) : grads[w], 2 * Var(w.value));
    }
  });
}

TEST_CASE("a Replicated constant is not a term of a sum over ranks") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var x = with_placement(tape.constant(data_of(0, {2})), comm, C);
    expect_refusal([&] { all_reduce(x, comm); }, {"all_reduce: its input is Constant", "counted once per rank"});
    expect_refusal([&] { as_partial(x, comm); }, {"as_partial: its input is Constant"});
  });
}
