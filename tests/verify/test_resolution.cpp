// SPDX-License-Identifier: Apache-2.0
// What rounding hides, and what it does not: in bf16, mistakes that are small as a whole are found where they are,
// correct gradients stay correct, and what a verdict says of its own resolution is true.
#include "tests/support/catch.h"
#include "tests/verify/planted.h"
#include "tools/weft/verdict/verdict.h"

using namespace weft;
using verify::Matrix;
using verify::Outcome;

namespace {

double in(DType dtype, double x) { return Tensor::full({}, x, DType::f64).to(dtype).to(DType::f64).item(); }

// Gradients of (rows, columns), whose rows become smaller and smaller: the last one is `smallest` of the first.
struct Planted {
  int ranks = 3;
  int64_t rows = 40, columns = 40;
  DType dtype = DType::bf16;
  double smallest = 1;
  uint64_t seed = 1;

  Matrix local(int rank) const {
    const Tensor drawn = Tensor::uniform({rows, columns}, {seed, static_cast<uint64_t>(rank)}, -1, 1, DType::f64);
    Matrix values(1, rows * columns);
    for (int64_t i = 0; i < values.size(); ++i) {
      const auto depth = static_cast<double>(i / columns) / std::max<double>(1, static_cast<double>(rows - 1));
      values(i) = in(dtype, drawn.data<double>()[i] * std::pow(smallest, depth));
    }
    return values;
  }

  // The mean, of which a ring rounds every sum, and then what `mistake` makes of it.
  verify::Dump dump(const std::function<void(Matrix&)>& mistake = {}) const {
    verify::Dump dump;
    dump.ranks = ranks;
    verify::ParameterEvidence& p = dump.parameters.emplace_back();
    p.name = "weight";
    p.precision = dtype == DType::bf16 ? verify::Precision{"bf16", 0x1p-8} : verify::Precision{"f32", 0x1p-23};
    Matrix sum = Matrix::Zero(1, rows * columns);
    const auto rounded = [this](double x) { return in(dtype, x); };
    for (int r = 0; r < ranks; ++r) {
      p.local.push_back({local(r)});
      sum = (sum + p.local.back()[0]).unaryExpr(rounded);
    }
    Matrix mean = sum * in(dtype, 1.0 / ranks);
    if (mistake) mistake(mean);
    p.reduced.assign(static_cast<size_t>(ranks), mean.unaryExpr(rounded));
    p.local_shapes.assign(static_cast<size_t>(ranks), Shape{rows, columns});
    p.reduced_shapes = p.local_shapes;
    return dump;
  }

  verify::Verdict verdict(const std::function<void(Matrix&)>& mistake = {}) const {
    const verify::Dump planted = dump(mistake);
    return verify::verdict(planted.parameters[0], planted);
  }
  Eigen::Ref<Matrix> row(Matrix& all, int64_t i) const { return all.middleCols(i * columns, columns); }
};

}  // namespace

TEST_CASE("a tensor in bf16 that is three per cent too large is wrong, and so are small rows that are lost") {
  const auto times = [](double factor) { return [factor](Matrix& mean) { mean *= factor; }; };
  const Planted even, falling{3, 40, 40, DType::bf16, 1e-3};
  CHECK(even.verdict().outcome == Outcome::correct);
  CHECK(even.verdict(times(1.03)).outcome == Outcome::wrong);
  CHECK(even.verdict(times(1.01)).outcome == Outcome::wrong);
  CHECK(falling.verdict().outcome == Outcome::correct);
  CHECK(falling.verdict([&](Matrix& mean) { mean.rightCols(10 * falling.columns).setZero(); }).outcome ==
        Outcome::wrong);
  CHECK(falling.verdict([&](Matrix& mean) { falling.row(mean, 39).setZero(); }).outcome == Outcome::wrong);
}

TEST_CASE("1,000 correct reductions in bf16 and f32, of all forms, are called correct") {
  int wrong = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const Planted planted{1 + static_cast<int>(i % 8),
                          1 + static_cast<int64_t>(i * 7 % 23),
                          1 + static_cast<int64_t>(i * 5 % 19),
                          i % 4 == 0 ? DType::f32 : DType::bf16,
                          i % 3 == 0 ? 1 : i % 3 == 1 ? 1e-2 : 1e-6,
                          i};
    const verify::Verdict verdict = planted.verdict();
    INFO(i << ": " << verdict.table[0].error);
    CHECK(verdict.outcome == Outcome::correct);
    wrong += verdict.outcome != Outcome::correct;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a mistake of twice the size that a verdict says it shows is found") {
  int missed_factors = 0, missed_rows = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Planted planted{2 + static_cast<int>(i % 5),
                          5 + static_cast<int64_t>(i % 30),
                          8 + static_cast<int64_t>(i % 40),
                          i % 2 ? DType::f32 : DType::bf16,
                          i % 3 ? 1 : 1e-2,
                          i};
    const verify::Resolution shown = planted.verdict().resolution.value();
    const double sign = i % 4 < 2 ? 1 : -1;
    missed_factors +=
        planted.verdict([&](Matrix& mean) { mean *= 1 + sign * 2 * shown.factor; }).outcome != Outcome::wrong;
    missed_rows += planted
                       .verdict([&](Matrix& mean) {
                         planted.row(mean, static_cast<int64_t>(i) % planted.rows) *= 1 + sign * 2 * shown.row;
                       })
                       .outcome != Outcome::wrong;
    CHECK(shown.factor < (i % 2 ? 1e-5 : 0.03));
  }
  CHECK(missed_factors == 0);
  CHECK(missed_rows == 0);
}
