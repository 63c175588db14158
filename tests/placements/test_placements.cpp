// SPDX-License-Identifier: Apache-2.0
// The placement of every op's result, and what ops refuse. test_placement_conversions.cpp has the conversions and the
// seeds of losses, test_placement_programs.cpp whole programs.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

using namespace placement_letters;

// A square matrix with this placement, with equal values on all ranks if it says so.
Tensor values_of(Placement placement, int rank, int use) {
  return data_of(placement == R || placement == I ? 0 : rank, {2, 2}, use);
}
Var leaf_placed(Tape& tape, Communicator& comm, Placement placement, int use) {
  return with_placement(tape.watch(values_of(placement, number(comm), use)), comm, placement);
}

using Two = Var (*)(const Var&, const Var&);
const Two add = [](auto&a, auto&b) { return a + b; }, subtract = [](auto&a, auto&b) { return a - b; },
          multiply = [](auto&a, auto&b) { return a * b; }, divide = [](auto&a, auto&b) { return a / b; },
          product = [](auto&a, auto&b) { return matmul(a, b); }, larger = [](auto&a, auto&b) { return maximum(a, b); },
          add_row = [](auto&a, auto&b) { return add_along(a, slice(reshape(b, {4}), 0, 0, 2), -1); },
          layer = [](auto&a, auto&b) { return linear(a, b); },
          biased = [](auto&a, auto&b) { return linear(a, b, slice(reshape(b, {4}), 0, 0, 2)); },
          chosen =
              [](auto&a, auto&b) {
                return where(replicated_constant(Tensor::full({2, 2}, 1, DType::u8)), a, b);
              },
          joined =
              [](auto&a, auto&b) {
                return concat({a, a, a, a, b}, 0);
              },
          exponential = [](auto&a, auto&) { return exp(a); }, shifted = [](auto&a, auto&) { return a + 1.0; },
          scaled = [](auto&a, auto&) { return -a * 2; }, summed = [](auto&a, auto&) { return sum(mean(a, 0)); },
          moved =
              [](auto&a, auto&) {
                return flip(transpose(pad(reshape(a, {4, 1}), 1, 1, 0)), 0);
              },
          picked = [](auto&a, auto&) { return gather_rows(a, replicated_constant(Tensor::arange(1))); };

}  // namespace

TEST_CASE("every op's result has the placement that its inputs imply") {
  struct Row {
    const char* what;
    Two call;
    Placement a, b, result;
  };
  const Row rows[] = {{"add", add, R, R, R},
                      {"add", add, R, V, V},
                      {"add", add, V, V, V},
                      {"add", add, P, P, P},
                      {"add", add, I, I, I},
                      {"sub", subtract, P, P, P},
                      {"mul", multiply, R, R, R},
                      {"mul", multiply, V, R, V},
                      {"mul", multiply, I, I, I},
                      {"mul", multiply, P, R, P},
                      {"mul", multiply, R, P, P},
                      {"matmul", product, P, R, P},
                      {"matmul", product, R, P, P},
                      {"matmul", product, V, R, V},
                      {"linear", layer, P, R, P},
                      {"biased", biased, V, R, V},
                      {"biased", biased, I, I, I},
                      {"div", divide, P, R, P},
                      {"div", divide, R, V, V},
                      {"maximum", larger, R, V, V},
                      {"maximum", larger, I, I, I},
                      {"where", chosen, P, P, P},
                      {"where", chosen, R, V, V},
                      {"concat", joined, P, P, P},
                      {"concat", joined, R, V, V},
                      {"add_along", add_row, P, P, P},
                      {"exp", exponential, R, R, R},
                      {"exp", exponential, I, I, I},
                      {"exp", exponential, V, V, V},
                      {"a number added", shifted, R, R, R},
                      {"a factor", scaled, P, P, P},
                      {"sum and mean", summed, P, P, P},
                      {"moved elements", moved, P, P, P},
                      {"moved elements", moved, I, I, I},
                      {"picked rows", picked, P, P, P}};
  run_ranks(2, [&](Communicator& comm) {
    for (const Row& row : rows) {
      Tape tape;
      const Placement result =
          placement_of(row.call(leaf_placed(tape, comm, row.a, 1), leaf_placed(tape, comm, row.b, 2)), comm);
      expect(result == row.result, row.what + (" of " + text(row.a)) + " and " + text(row.b) + " is " + text(result));
    }
  });
}

TEST_CASE("an op that would count a term once per rank, or drop part of a sum, is refused with advice") {
  const char *complete = "complete the pending sum with all_reduce or reduce_scatter first",
             *once = "keep_on adds it on one rank only", *vary_it = "vary() the Invariant input",
             *part = "it is not linear, and what one rank holds of a Partial input is a part of a sum";
  struct Row {
    Two call;
    Placement a, b;
    std::vector<const char*> said;
  };
  const Row rows[] = {
      {exponential, P, P, {"exp: ", part, complete}},
      {shifted, P, P, {"affine: ", part, complete}},
      {larger, P, P, {"maximum: ", part, complete}},
      {add, P, R, {"add: input 2, which is Replicated, would be added once per rank to a Partial one", once, complete}},
      {add, R, P, {"add: input 1, which is Replicated", "once per rank", once}},
      {subtract, P, V, {"sub: input 2, which is Varying, would be added once per rank", "with share or as_partial"}},
      {add_row, P, R, {"add_along: input 2, which is Replicated, would be added once per rank", complete}},
      {biased, P, R, {"linear with bias: ", part, complete}},
      {chosen, P, R, {"where: input 2, which is Replicated, would be added once per rank"}},
      {joined, P, R, {"concat: ", "which is Replicated, would be added once per rank"}},
      {multiply, P, P, {"mul: the product of two Partial inputs is not a part of their sums' product", complete}},
      {product, P, P, {"matmul: the product of two Partial inputs"}},
      {multiply, P, V, {"mul: input 2, which is Varying, would multiply each rank's part of a Partial input"}},
      {divide, R, P, {"div: it is not linear in its second input, which is Partial"}},
      {divide, P, P, {"div: ", complete}},
      {divide, P, V, {"div: input 2, which is Varying, would multiply"}},
      {add, I, V, {"add: input 2, which is Varying, meets an Invariant one", vary_it}},
      {multiply, R, I, {"mul: input 1, which is Replicated, meets an Invariant one", vary_it}},
      {multiply, I, P, {"mul: input 2, which is Partial, meets an Invariant one", vary_it}},
      {larger, V, I, {"maximum: input 1, which is Varying, meets an Invariant one", vary_it}}};
  run_ranks(2, [&](Communicator& comm) {
    for (const Row& row : rows)
      for (const char* said : row.said) {
        Tape tape;
        const Var a = leaf_placed(tape, comm, row.a, 1), b = leaf_placed(tape, comm, row.b, 2);
        expect_refusal([&] { row.call(a, b); }, {said});
      }
  });
}

TEST_CASE("a collective refuses an input that it would count twice or leave incomplete") {
  using Verb = std::function<void(const Var&, Communicator&)>;
  struct Row {
    Verb call;
    std::vector<Placement> refused;
    std::vector<const char*> said;
  };
  const Rows rows = {1, 1};
  const char *twice = "all ranks hold this value already, so it would be counted once per rank",
             *unfinished = "complete a Partial sum";
  const Row table[] = {
      {[](auto& x, auto& comm) { all_reduce(x, comm); },
       {R, I},
       {"all_reduce: its input is", "Partial or Varying is needed", twice}},
      {[](auto& x, auto& comm) { all_reduce(x, comm, ReduceOp::mean); }, {R, I}, {"all_reduce: its input is", twice}},
      {[](auto& x, auto& comm) { reduce_scatter(x, comm); }, {R, I}, {"reduce_scatter: its input is", twice}},
      {[](auto& x, auto& comm) { reduce(x, {0}, comm); }, {R, I}, {"reduce: its input is", twice}},
      {[](auto& x, auto& comm) { all_reduce(x, comm, ReduceOp::product); },
       {R, I, P},
       {"all_reduce product: its input is"}},
      {[](auto& x, auto& comm) { all_reduce(x, comm, ReduceOp::maximum); },
       {I, P},
       {"all_reduce extreme: its input is", unfinished}},
      {[](auto& x, auto& comm) { all_gather(x, comm); },
       {I, P},
       {"all_gather: its input is", "Replicated or Varying is needed", unfinished}},
      {[](auto& x, auto& comm) { gather(x, {0}, comm); }, {I, P}, {"gather: its input is", unfinished}},
      {[](auto& x, auto& comm) { scatter(x, {0}, comm); }, {I, P}, {"scatter: its input is", unfinished}},
      {[](auto& x, auto& comm) { broadcast(x, {0}, comm); }, {I, P}, {"broadcast: its input is", unfinished}},
      {[](auto& x, auto& comm) { all_to_all(x, comm); }, {I, P}, {"all_to_all: its input is", unfinished}},
      {[](auto& x, auto& comm) { shift(x, 1, comm); }, {I, P}, {"permute: its input is", unfinished}},
      {[](auto& x, auto& comm) { scan(x, comm); }, {I, P}, {"scan: its input is", unfinished}},
      {[](auto& x, auto& comm) { exscan(x, comm); }, {I, P}, {"exscan: its input is", unfinished}},
      {[](auto& x, auto& comm) { send(x, {0}, comm); }, {I, P}, {"send: its input is", unfinished}},
      {[](auto& x, auto& comm) { vary(x, comm); }, {R, V, P}, {"vary: its input is", "only Invariant values need it"}},
      {[](auto& x, auto& comm) { all_reduce_equal(x, comm); },
       {R, I},
       {"all_reduce_equal: its input is", "complete on every rank already"}},
      {[&](auto& x, auto& comm) { all_gather_equal(x, rows, comm); },
       {R, I, P},
       {"all_gather_equal: its input is", "Varying is needed"}},
      {[&](auto& x, auto& comm) { own_rows(x, rows, comm); },
       {V, P},
       {"own_rows: its input is", "reduce_scatter takes rows of a sum"}},
      {[&](auto& x, auto& comm) { padded_rows(x, rows, comm); },
       {R, I, P},
       {"padded_rows: its input is", "a rank's own rows"}},
      {[](auto& x, auto& comm) { keep_on(x, {0}, comm); },
       {V, P},
       {"keep_on: its input is", "Replicated or Invariant is needed"}},
      {[](auto& x, auto& comm) { as_invariant(x, comm); },
       {I, V, P},
       {"as_invariant: its input is", "all_reduce_equal and all_gather_equal"}},
      {[](auto& x, auto& comm) { as_partial(x, comm); },
       {R, I, P},
       {"as_partial: its input is", "keep_on one rank counts it once"}},
      {[](auto& x, auto& comm) { as_varying(x, comm); },
       {I, V, P},
       {"as_varying: its input is", "vary() an Invariant value"}}};
  run_ranks(2, [&](Communicator& comm) {
    for (const Row& row : table)
      for (const Placement placement : row.refused)
        for (const char* said : row.said) {
          Tape tape;
          const Var x = leaf_placed(tape, comm, placement, 1);
          expect_refusal([&] { row.call(x, comm); }, {said, text(placement).c_str(), "over threads (2 ranks)"});
        }
  });
}

TEST_CASE("parameters are Replicated, data Varying, and tensors outside of a tape unknown") {
  on_ranks([](Communicator& comm) {
    const Parameter p("p", data_of(0, {2, 2}));
    Tape tape;
    const Var early = tape.watch(p) * 2, own = tape.watch(data_of(number(comm), {2, 2})), plain(data_of(0, {2, 2}));
    all_reduce(own, comm);  // from here on the tape knows the group
    const std::pair<Var, Placement> table[] = {{early, R},
                                               {tape.watch(p), R},
                                               {own, V},
                                               {tape.constant(plain.value()), V},
                                               {plain, unknown},
                                               {early * own, V},
                                               {square(early), R},
                                               {own * plain, V},
                                               {early * plain, unknown},
                                               {early * plain * own, V},
                                               {replicated_constant(plain.value()), Placement::constant},
                                               {early * replicated_constant(plain.value()), R}};
    for (const auto& [x, placement] : table)
      expect(placement_of(x, comm) == placement, text(placement) + " is " + text(placement_of(x, comm)));
    const std::pair<Var, Placement> results[] = {
        {all_reduce(own, comm), R},  {all_reduce(own, comm, ReduceOp::maximum), R},
        {all_gather(own, comm), R},  {broadcast(own, {0}, comm), R},
        {reduce(own, {0}, comm), V}, {gather(own, {0}, comm), V},
        {shift(own, 1, comm), V},    {scan(own, comm), V},
        {exscan(own, comm), V},      {scatter(all_gather(own, comm), {0}, comm), V}};
    for (const auto& [x, placement] : results)
      expect(placement_of(x, comm) == placement, "a collective's result is " + text(placement_of(x, comm)));
  });
}
