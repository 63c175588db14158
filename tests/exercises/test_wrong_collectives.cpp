// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/exercises/planted.h"
#include "weft/collectives/linear_collective.h"
#include "weft/engine/text/file_text.h"

using namespace weft;
using namespace weft::grader;

namespace {

using V = const Var&;
using C = Communicator&;

const CollectiveOp wrong_gather_op{"gather"};
// A gather whose pullback is of g, of the rows of all ranks, and of where the own ones begin and end.
using GatherPullback = std::function<Tensor(const Tensor& g, const Rows& counts, int64_t begin, int64_t end, C comm)>;
Var gathered_with(const GatherPullback& pullback, V rows, C comm) {
  const Rows counts = comm.rows_of(rows.shape()[0]);
  const int64_t begin = rows_before(counts, comm.rank().value), end = begin + rows.shape()[0];
  return record(wrong_gather_op, comm.all_gather_v(rows.value(), counts),
                from(rows, [=, &comm](V g) { return Var(pullback(g.value(), counts, begin, end, comm)); }));
}
Lesson gather_with(const GatherPullback& pullback) {
  return gather([=](V rows, C comm) { return gathered_with(pullback, rows, comm); });
}

}  // namespace

TEST_CASE("wrong adjoints of a gather are named") {
  using G = const Tensor&;
  using R = const Rows&;
  const Lesson own_slot = gather_with([](G g, R, int64_t begin, int64_t end, C) { return g.slice(begin, end); });
  CHECK_THAT(file_text(WEFT_EXERCISES "/README.md"), Catch::Contains("```text\n" + grade(own_slot).text + "```\n"));
  expect_wrong(own_slot, {"S2: Each rank keeps what its own loss says", "It shows on 3 and 5 ranks.",
                          "wrong: the cotangent of the own rows\n"});
  expect_wrong(gather_with([](G g, R, int64_t begin, int64_t end, C) {
                 return Tensor::zeros(g.slice(begin, end).shape(), DType::f64);
               }),
               {"S1: Nothing comes back", "It shows on 1, 3 and 5 ranks."});
  expect_wrong(gather_with([](G g, R counts, int64_t, int64_t, C comm) {
                 return comm.reduce_scatter_v(g, counts, ReduceOp::mean);
               }),
               {"S6: The terms are averaged over ranks"});
  expect_wrong(gather_with([](G g, R counts, int64_t, int64_t, C comm) {
                 return comm.reduce_scatter_v(comm.all_reduce(g), counts);
               }),
               {"S7: The sum is taken twice"});
  expect_wrong(
      gather_with([](G g, R, int64_t begin, int64_t end, C comm) { return scaled(g.slice(begin, end), comm.size()); }),
      {"S4: The own slot is multiplied by the number of ranks"});
  expect_wrong(gather_with([](G g, R counts, int64_t begin, int64_t end, C comm) {
                 return (Var(comm.reduce_scatter_v(g, counts)) - Var(g.slice(begin, end))).value();
               }),
               {"What a rank's own loss says of its values is missing."});
  expect_wrong(
      gather_with([](G g, R, int64_t begin, int64_t end, C comm) { return comm.broadcast(g, {0}).slice(begin, end); }),
      {"Only what the loss of rank 0 says comes back."});
  expect_wrong(gather_with([](G g, R, int64_t begin, int64_t end, C comm) { return comm.scan(g).slice(begin, end); }),
               {"ranks up to its own"});
  expect_wrong(gather_with([](G g, R counts, int64_t, int64_t, C comm) {
                 const bool last = comm.rank().value + 1 == comm.size();
                 return comm.reduce_scatter_v(last ? scaled(g, 0) : g, counts);
               }),
               {"S24: What the loss of the last rank says is missing"});
  expect_wrong(
      gather_with([](G g, R counts, int64_t, int64_t, C comm) { return scaled(comm.reduce_scatter_v(g, counts), -1); }),
      {"All values have the wrong sign."});
  expect_wrong(gather([](V rows, C) { return rows * 1; }),
               {"rank 0 has a tensor of (2, 2), not of (6, 2)", "It shows on 3 and 5 ranks."});
  expect_wrong(gather([](V rows, C comm) {
                 const Rows counts = comm.rows_of(rows.shape()[0]);
                 return all_gather_v(rows, counts, comm) * 0.5;
               }),
               {"wrong: what is gathered\n  All values are half of the right ones."});
  expect_wrong(
      gather([](V rows, C comm) { return flatten(all_gather_v(rows, comm.rows_of(rows.shape()[0]), comm), 0); }),
      {"rank 0 has a tensor of (8), not of (4, 2)", "wrong: what is gathered\n"});
  // Shapes that do not fit, and ranks that wait for each other.
  expect_wrong(gather_with([](G g, R, int64_t, int64_t, C comm) { return comm.all_reduce(g); }),
               {"backward of gather: the gradient is f64 (6, 2) but the input is f64 (2, 2)"});
  expect_wrong(gather([](V rows, C comm) { return all_gather(rows, comm); }),
               {"3 ranks with 1, 4, 2 it ends with an error:"});
  expect_wrong(gather_with([](G g, R counts, int64_t begin, int64_t end, C comm) {
                 return comm.rank().value == 0 ? comm.reduce_scatter_v(g, counts) : g.slice(begin, end);
               }),
               {"3 ranks with 2, 2, 2 it ends with an error:"});
  expect_wrong(gather_with([](G g, R counts, int64_t begin, int64_t end, C comm) {
                 return comm.rank().value == 0 ? comm.reduce_scatter_v(g, counts)
                                               : comm.all_reduce(g).slice(begin, end);
               }),
               {"the ranks of a group are in different calls"});
}

namespace {

Var loss_of(V queries, V keys) { return sum(log_sum_exp(matmul(queries, keys, Transpose::no, Transpose::yes), 1)); }
int64_t count(V features, C comm) { return total_rows(comm.rows_of(features.shape()[0])); }
Var all_of(V features, C comm) { return all_gather_v(features, comm.rows_of(features.shape()[0]), comm); }
Var own_put_back(V features, C comm) {
  const Rows counts = comm.rows_of(features.shape()[0]);
  const Tensor all = comm.all_gather_v(detach(features).value(), counts);
  const int64_t begin = rows_before(counts, comm.rank().value), end = begin + features.shape()[0];
  Tape& tape = *features.tape();
  return concat({tape.constant(all.slice(0, begin)), features, tape.constant(all.slice(end, all.shape()[0]))}, 0);
}

}  // namespace

TEST_CASE("a factor that is made of counts is told") {
  struct Told {
    double (*factor)(double ranks, double all, double own);
    const char* said;
  };
  const Told factors[] = {
      {[](double, double, double) { return 0.0; }, "S1: All values are zero"},
      {[](double, double, double) { return -1.0; }, "All values have the wrong sign."},
      {[](double, double, double) { return 2.0; }, "All values are twice the right ones."},
      {[](double, double, double) { return 0.5; }, "All values are half of the right ones."},
      {[](double, double, double) { return -0.25; }, "All values are -0.25 times the right ones."},
      {[](double ranks, double, double) { return ranks; }, "S8: All values are W times the right ones"},
      {[](double ranks, double, double) { return 1 / ranks; }, "S9: All values are 1/W of the right ones"},
      {[](double, double all, double) { return all; }, "the right ones times the number of samples of all ranks."},
      {[](double, double all, double) { return 1 / all; },
       "the right ones divided by the number of samples of all ranks."},
      {[](double ranks, double all, double) { return all / ranks; }, "the right ones times N / W"},
      {[](double ranks, double all, double) { return ranks / all; }, "the right ones times W / N."},
      {[](double ranks, double all, double own) { return all / (ranks * own); },
       "S12: Each rank's values are N / (W n)"},
      {[](double, double all, double own) { return all / own; }, "S12: Each rank's values are N / n"},
      {[](double, double all, double own) { return own / all; }, "Each rank's values are n / N"},
      {[](double, double, double own) { return own; }, "the right ones times the number of its own samples."},
      {[](double, double, double own) { return 1 / own; }, "the right ones divided by the number of its own samples."},
  };
  for (const auto& [factor, said] : factors)
    expect_wrong(gather([&](V rows, C comm) {
                   const Rows counts = comm.rows_of(rows.shape()[0]);
                   const double own = static_cast<double>(rows.shape()[0]);
                   return all_gather_v(rows, counts, comm) * factor(comm.size(), total(rows.shape()[0], comm), own);
                 }),
                 {said, "wrong, too: the cotangent of the own rows\n"});
}

TEST_CASE("the loss that exercise 5 asks to repair is wrong") {
  expect_wrong(attraction([](V features, C comm) {
                 const Rows counts = comm.rows_of(features.shape()[0]);
                 const int me = comm.rank().value;
                 const Tensor all = comm.all_gather_v(detach(features).value(), counts);
                 const int64_t begin = rows_before(counts, me), end = begin + features.shape()[0];
                 const Var keys = concat({Var(all.slice(0, begin)), features, Var(all.slice(end, all.shape()[0]))}, 0);
                 const Var scores = matmul(features, keys, Transpose::no, Transpose::yes);
                 return share(sum(log_sum_exp(scores, 1)), total_rows(counts), comm);
               }),
               {"S2: The own rows are put back"});
}

TEST_CASE("wrong losses over all ranks' features are named") {
  expect_wrong(
      attraction([](V x, C comm) { return share(loss_of(x, own_put_back(x, comm)), count(x, comm), comm); }),
      {"S2: The own rows are put back", "It shows on 3 and 5 ranks.", "wrong: the cotangent of the features\n"});
  expect_wrong(attraction([](V x, C comm) {
                 const Var all = own_put_back(x, comm);
                 return loss_of(all, all) / static_cast<double>(count(x, comm) * comm.size());
               }),
               {"S3: Every rank computes the whole loss"});
  expect_wrong(attraction([](V x, C comm) { return share(loss_of(x, detach(all_of(x, comm))), count(x, comm), comm); }),
               {"S1: The other rows, and the own ones among them, are constants."});
  expect_wrong(attraction([](V x, C comm) { return share(loss_of(detach(x), all_of(x, comm)), count(x, comm), comm); }),
               {"so they learn as keys only"});
  expect_wrong(attraction([](V x, C comm) { return share(loss_of(x, x), count(x, comm), comm); }),
               {"with the own rows only", "wrong: the sum of the shares, the cotangent of the features\n"});
  expect_wrong(attraction([](V x, C comm) { return loss_of(x, all_of(x, comm)) / static_cast<double>(x.shape()[0]); }),
               {"S12: Each rank divides by the number of its own samples."});
  expect_wrong(attraction([](V x, C comm) { return share(loss_of(x, all_of(x, comm)), x.shape()[0], comm); }),
               {"S12: Each rank divides by the number of its own samples."});
  expect_wrong(attraction([](V x, C comm) {
                 const auto samples = static_cast<double>(std::max<int64_t>(x.shape()[0], 1) * comm.size());
                 return loss_of(x, all_of(x, comm)) / samples;
               }),
               {"S12: This is the mean of the ranks' means"});
  expect_wrong(attraction([](V x, C comm) {
                 const Var scores = matmul(x, all_of(x, comm), Transpose::no, Transpose::yes);
                 return share(sum(log_sum_exp(scores, 0)), count(x, comm), comm);
               }),
               {"sums over queries, axis 0"});
  expect_wrong(attraction([](V x, C comm) {
                 const Var keys = gathered_with([](const Tensor& g, const Rows& counts, int64_t, int64_t,
                                                   C comm) { return comm.reduce_scatter_v(g, counts, ReduceOp::mean); },
                                                x, comm);
                 return share(loss_of(x, keys), count(x, comm), comm);
               }),
               {"S6: The terms are averaged over ranks."});
  expect_wrong(
      attraction([](V x, C comm) { return share(loss_of(x, all_of(x, comm)), count(x, comm), comm) / comm.size(); }),
      {"S9: All values are 1/W of the right ones"});
  // The other rows without a word of detach, which Weft refuses.
  expect_wrong(attraction([](V x, C comm) {
                 const Tensor all = comm.all_gather_v(x.value(), comm.rows_of(x.shape()[0]));
                 return share(loss_of(x, all), count(x, comm), comm);
               }),
               {"what comm.all_gather_v made of values that gradients flow to"});
}

TEST_CASE("wrong conversions of placements are named") {
  const auto trusted = [](V x, Placement placement, C comm) { return with_placement(x, comm, placement); };
  expect_wrong(two_layers([=](V x, V a, V b, C comm) {
                 const Var hidden = tanh(matmul(trusted(x, Placement::replicated, comm), a));
                 return all_reduce_equal(matmul(hidden, b), comm);
               }),
               {"S29: x is not varied", "wrong: the cotangent of x\n"});
  expect_wrong(
      two_layers([=](V x, V a, V b, C comm) {
        const Var hidden = tanh(matmul(vary(x, comm), a));
        return trusted(all_reduce(matmul(hidden, b), comm), Placement::invariant, comm);
      }),
      {"S7: The result is summed with an all_reduce", "wrong: the cotangent of x, the cotangent of a, the cot"});
  expect_wrong(two_layers([=](V x, V a, V b, C comm) {
                 return trusted(matmul(tanh(matmul(vary(x, comm), a)), b), Placement::invariant, comm);
               }),
               {"The result is a rank's own term of the sum"});
  expect_wrong(two_layers([](V x, V a, V b, C comm) {
                 return all_reduce_equal(matmul(tanh(matmul(vary(x, comm), a)), b), comm) / comm.size();
               }),
               {"averaged over ranks, not summed"});
  expect_wrong(two_layers([](V x, V a, V b, C comm) {
                 return all_reduce_equal(matmul(tanh(matmul(x.tape()->constant(x.value()), a)), b), comm);
               }),
               {"S1: x is a constant"});
  expect_wrong(
      two_layers([](V x, V a, V b, C comm) { return all_reduce_equal(matmul(matmul(vary(x, comm), a), b), comm); }),
      {"none of the usual mistakes", "wrong: the result\n"});
  expect_wrong(
      two_layers([](V x, V a, V b, C comm) { return all_reduce(matmul(tanh(matmul(vary(x, comm), a)), b), comm); }),
      {"the result is Replicated for the tape, not Invariant"});
  // What Weft refuses, and what it cannot know to be equal.
  expect_wrong(two_layers([](V x, V a, V b, C comm) { return all_reduce_equal(matmul(tanh(matmul(x, a)), b), comm); }),
               {"it ends with an error:\n  matmul: "});
  expect_wrong(two_layers([](V x, V a, V b, C comm) { return matmul(tanh(matmul(vary(x, comm), a)), b); }),
               {"the result is Varying for the tape, not Invariant"});
}
