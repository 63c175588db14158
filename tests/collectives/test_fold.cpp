// SPDX-License-Identifier: Apache-2.0
// The bits of reductions over ranks. The expected ones are written out for each rank here, as sums of pairs.
#include "weft/collectives/fold.h"

#include <limits>
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/collectives/communicator.h"

using namespace weft;

namespace {

constexpr int64_t size = 4'099;  // more than a block of a fold

Tensor term(int rank, DType dtype) { return data_of(rank, {size}, 3, DType::f64).to(dtype); }

// a + b, rounded to the type of both.
Tensor plus(const Tensor& a, const Tensor& b) {
  Tensor sum = Tensor::like(a);
  for (int64_t i = 0; i < size; ++i) {
    if (a.dtype() == DType::f32)
      sum.mutate<float>()[i] = a.data<float>()[i] + b.data<float>()[i];
    else
      sum.mutate<double>()[i] = a.data<double>()[i] + b.data<double>()[i];
  }
  return sum;
}

std::string text_of(std::span<const int> ranks, FoldOrder order) {
  if (ranks.size() == 1) return std::to_string(ranks[0]);
  const FoldOrder::Parts two = order.parts(ranks);
  return "(" + text_of(two.first, two.of_first) + "+" + text_of(two.second, {}) + ")";
}

}  // namespace

TEST_CASE("a scan adds the halves of the tree on its side, and its own term last") {
  using Kind = FoldOrder::Kind;
  CHECK(text_of(std::vector{0, 1, 2, 3}, {Kind::before, 3}) == "(((0+1)+2)+3)");
  CHECK(text_of(std::vector{0, 1, 2, 3, 4, 5}, {Kind::before, 6}) == "(((0+1)+(2+3))+(4+5))");
  CHECK(text_of(std::vector{0, 1, 2, 3, 4, 5, 6}, {Kind::before, 6}) == "((((0+1)+(2+3))+(4+5))+6)");
  CHECK(text_of(std::vector{0, 1, 2, 3, 4, 5, 6}, {Kind::before, 7}) == "((((0+1)+(2+3))+(4+5))+6)");
  CHECK(text_of(std::vector{1, 2, 3, 4}, {Kind::after, 0}) == "((4+(2+3))+1)");
  CHECK(text_of(std::vector{0, 1, 2, 3, 4}, {Kind::after, 0}) == "(((4+(2+3))+1)+0)");
  CHECK(text_of(std::vector{6, 7, 8}, {Kind::after, 5}) == "(8+(6+7))");
  CHECK(FoldOrder{Kind::before, 7}.tree_parts(std::vector{0, 1, 2, 3, 4, 5, 6, 7}).size() == 4);
  CHECK(FoldOrder{Kind::after, 0}.tree_parts(std::vector{1, 2, 3, 4})[1].size() == 2);
}

TEST_CASE("a fold adds halves of the ranks, whichever take part") {
  const auto text_of = [](std::vector<int> ranks) {
    return fold_over_ranks(
        ranks, [](int rank) { return std::to_string(rank); },
        [](const std::string& a, const std::string& b) { return "(" + a + "+" + b + ")"; });
  };
  CHECK(text_of({0}) == "0");
  CHECK(text_of({0, 1, 2}) == "((0+1)+2)");
  CHECK(text_of({1, 2, 3}) == "(1+(2+3))");
  CHECK(text_of({0, 1, 2, 3, 4}) == "(((0+1)+(2+3))+4)");
  CHECK(text_of({3, 4}) == "(3+4)");
  CHECK(text_of({2, 3, 4, 5, 6}) == "((2+3)+((4+5)+6))");
  CHECK(text_of({0, 3, 5, 7}) == "((0+3)+(5+7))");
  CHECK(text_of({0, 1, 2, 3, 4, 5, 6, 7, 8}) == "((((0+1)+(2+3))+((4+5)+(6+7)))+8)");
}

// bf16 is added in f32 and rounded once. Adding it term by term would be wrong in its last digit.
TEST_CASE("every sum over ranks has the bits of adding halves of the ranks") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    run_ranks(5, [&](Communicator& comm) {
      const int me = number(comm);
      std::vector<Tensor> x;
      for (int r = 0; r < 5; ++r) x.push_back(term(r, dtype).to(dtype == DType::f64 ? DType::f64 : DType::f32));
      const Tensor pairs = plus(plus(x[0], x[1]), plus(x[2], x[3]));
      const Tensor sums[] = {x[0], plus(x[0], x[1]), plus(plus(x[0], x[1]), x[2]), pairs, plus(pairs, x[4])};
      const Tensor scans[] = {sums[0], sums[1], sums[2], plus(sums[2], x[3]), sums[4]};
      const Tensor after_rank_0 = plus(plus(x[4], plus(x[2], x[3])), x[1]);
      const Tensor from_rank_1 = plus(plus(x[1], plus(x[2], x[3])), x[4]);
      const Tensor mine = term(me, dtype);
      const Tensor all = sums[4].to(dtype);

      expect_same_bits(comm.all_reduce(mine), all);
      Tensor in_place = mine.clone();
      comm.all_reduce(in_place, in_place);
      expect_same_bits(in_place, all);
      expect_same_bits(comm.run(AllReduce{}, mine.slice(7, 10)), all.slice(7, 10));
      expect_same_bits(comm.start(AllReduce{}, mine).wait(), all);
      const Rows rows{size - 10, 0, 3, 7, 0};
      expect_same_bits(comm.reduce_scatter_v(mine, rows),
                       all.slice(rows_before(rows, me), rows_before(rows, me) + rows_of_rank(rows, me)));
      expect_same_bits(comm.scan(mine), scans[me].to(dtype));
      if (me == 0) expect_same_bits(comm.run(Exscan{ReduceOp::sum, true}, mine), after_rank_0.to(dtype));
      if (me != 0) comm.run(Exscan{ReduceOp::sum, true}, mine);
      const Tensor gathered = comm.run(Permute{{0, 3, 3, 3, 3}, true}, mine);  // ranks 1 to 4 read rank 3
      if (me == 3) expect_same_bits(gathered, from_rank_1.to(dtype));

      Tensor mean = sums[4].clone();
      for (int64_t i = 0; i < size; ++i) {
        if (dtype == DType::f64)
          mean.mutate<double>()[i] *= 1 / 5.0;
        else
          mean.mutate<float>()[i] *= static_cast<float>(1 / 5.0);
      }
      expect_same_bits(comm.all_reduce(mine, ReduceOp::mean), mean.to(dtype));
    });
}

TEST_CASE("an exscan on a rank without others is what its reduction leaves unchanged") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::pair<ReduceOp, double> neutral[] = {
      {ReduceOp::sum, 0}, {ReduceOp::product, 1}, {ReduceOp::maximum, -infinity}, {ReduceOp::minimum, infinity}};
  on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
    for (const bool reverse : {false, true})
      for (const auto& [op, value] : neutral) {
        const Tensor others = comm.run(Exscan{op, reverse}, term(number(comm), DType::f32));
        if (number(comm) == (reverse ? comm.size() - 1 : 0)) expect_same_bits(others, Tensor::full({size}, value));
      }
  });
}
