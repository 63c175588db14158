// SPDX-License-Identifier: Apache-2.0
// Mistakes of a reducer that have no name are described by the weights that it gives to ranks and micro-batches.
#include "tests/support/catch.h"
#include "tools/weft/verdict/verdict.h"

using namespace weft;
using verify::Matrix;
using verify::Outcome;

namespace test_weights {

double in(DType dtype, double x) { return Tensor::full({}, x, DType::f64).to(dtype).to(DType::f64).item(); }

// Gradients of 12 rows of 10, on so many ranks and micro-batches, and what a reducer makes of them that should take
// the mean over ranks of the sums over micro-batches.
struct Reduced {
  int ranks;
  int passes;
  DType dtype;
  uint64_t seed;

  using Weight = std::function<double(int result, int rank, int pass)>;

  // `broken`: one element is another.
  verify::Verdict by(const Weight& weight, bool broken = false) const {
    constexpr int64_t rows = 12, columns = 10;
    verify::Dump dump;
    dump.ranks = ranks;
    dump.micro_batches = passes;
    verify::ParameterEvidence& p = dump.parameters.emplace_back();
    p.name = "weight";
    p.precision = dtype == DType::bf16 ? verify::Precision{"bf16", 0x1p-8} : verify::Precision{"f32", 0x1p-23};
    p.reduced.assign(static_cast<size_t>(ranks), Matrix::Zero(1, rows * columns));
    for (int r = 0; r < ranks; ++r) {
      p.local.emplace_back();
      for (int k = 0; k < passes; ++k) {
        const Random random{seed, static_cast<uint64_t>(r * passes + k)};
        const Tensor drawn = Tensor::uniform({rows, columns}, random, -1, 1, DType::f64);
        Matrix& term = p.local.back().emplace_back(1, rows * columns);
        for (int64_t i = 0; i < term.size(); ++i) term(i) = in(dtype, (1 + r) * drawn.data<double>()[i]);
        for (int q = 0; q < ranks; ++q) p.reduced[static_cast<size_t>(q)] += weight(q, r, k) / ranks * term;
      }
    }
    if (broken) p.reduced[0](7) += 1;
    for (Matrix& each : p.reduced) each = each.unaryExpr([this](double x) { return in(dtype, x); }).eval();
    p.local_shapes.assign(static_cast<size_t>(ranks), Shape{rows, columns});
    p.reduced_shapes = p.local_shapes;
    return verify::verdict(p, dump);
  }
};

std::string described(const verify::Verdict& verdict) {
  if (verdict.outcome == Outcome::correct) return "correct";
  return verdict.best ? verdict.best->signature->id : verdict.described ? verdict.described->text : "unknown";
}

std::vector<Reduced> all(int passes) {
  std::vector<Reduced> all;
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (uint64_t seed = 1; seed <= 5; ++seed) all.push_back({ranks, passes, dtype, seed});
  return all;
}

TEST_CASE("correct gradients have no description") {
  for (const int passes : {1, 2, 4})
    for (const Reduced& reduced : all(passes))
      CHECK(described(reduced.by([](int, int, int) { return 1; })) == "correct");
}

TEST_CASE("ranks that weigh differently are described") {
  for (const Reduced& reduced : all(1)) {
    const auto found = described(reduced.by([](int, int rank, int) { return rank == 0 ? 0.5 : rank == 1 ? 2 : 1; }));
    const std::string more = reduced.ranks == 3 ? "s 0 to 2 weigh 1/2, 2 and 1" : "s 0 to 4 weigh 1/2, 2, 1, 1 and 1";
    CHECK(found == "the gradients of rank" + more + " times what they should");
  }
}

TEST_CASE("micro-batches that weigh differently are described") {
  for (const Reduced& reduced : all(2))
    CHECK(described(reduced.by([](int, int, int pass) { return pass == 0 ? 1.5 : 0.75; })) ==
          "the gradients of micro-batches 0 to 1 weigh 3/2 and 3/4 times what they should");
  for (const Reduced& reduced : all(3))
    CHECK(described(reduced.by([](int, int, int pass) { return std::pow(0.5, pass); })) ==
          "the gradients of micro-batches 0 to 2 weigh 1, 1/2 and 1/4 times what they should (each is 2 times the one "
          "after it)");
  for (const Reduced& reduced : all(2))
    CHECK_THAT(described(reduced.by([](int, int rank, int pass) { return rank == 1 && pass == 1 ? 3 : 1; })),
               Catch::Contains("weigh 1 and 1 times what they should on rank 0; 1 and 3 on rank 1; 1 and 1 on rank 2"));
}

TEST_CASE("ranks that reduce in groups of their own are described by whose gradients they have") {
  for (const Reduced& reduced : all(1)) {
    if (reduced.ranks != 3) continue;
    const auto of_group = [](int result, int rank, int) { return result == 2 || rank == 2 ? result == rank : 1.5; };
    CHECK(described(reduced.by(of_group)) == "reduced in groups of their own: ranks 0, 1; 2");
    // These do not weigh the same, which the groups alone would not say.
    const auto uneven = [](int result, int rank, int) {
      return result == 2 || rank == 2 ? result == rank : 1.0 + rank;
    };
    CHECK(described(reduced.by(uneven)) ==
          "on ranks 0 and 1 the gradients of ranks 0 to 2 weigh 1, 2 and 0 times what they should; "
          "on rank 2 the gradients of ranks 0 to 2 weigh 0, 0 and 1 times what they should");
  }
}

TEST_CASE("what no weights explain stays unknown") {
  const auto weight = [](int, int rank, int) { return rank == 0 ? 0.5 : 1; };
  for (const Reduced& reduced : all(1)) CHECK(described(reduced.by(weight, true)) == "unknown");
  const auto right = [](int, int, int) { return 1; };
  for (const Reduced& reduced : all(1)) {
    const verify::Verdict found = reduced.by(right, true);
    INFO(described(found));
    CHECK(found.remarks == std::vector<std::string>{"element 7 alone: all before and after are right"});
  }
}

TEST_CASE("what many weights explain has no description") {
  verify::Dump dump;
  dump.ranks = 3;
  verify::ParameterEvidence p;
  p.name = "weight";
  p.precision = {"f32", 0x1p-23};
  const auto drawn = [](uint64_t number) {
    const Tensor x = Tensor::uniform({100}, Random{1, number}, -1, 1, DType::f64);
    return Matrix(Eigen::Map<const Matrix>(x.data<double>(), 1, 100).cast<float>().cast<double>());
  };
  const Matrix one = drawn(1), two = drawn(2);
  for (int r = 0; r < 3; ++r) {
    p.local.push_back({r == 0 ? one : two});
    p.reduced.push_back(0.5 * one + 1.7 * two);
  }
  CHECK_FALSE(verify::verdict(p, dump).described.has_value());
}

}  // namespace test_weights
