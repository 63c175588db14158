// SPDX-License-Identifier: Apache-2.0
// What optimizers add to a parameter: Weft's own are called correct, and mistakes in what they are given, in how they
// divide a matrix and in who takes the result are named. The verifier shares no code with them.
#include "tests/support/catch.h"
#include "tests/verify/said.h"
#include "tools/weft/verdict/verdict.h"
#include "weft/optim/optimizer.h"

using namespace weft;
using verify::Matrix;
using verify::OptimizerRule;
using verify::Outcome;
using Kind = OptimizerRule::Kind;

namespace test_updates {

using ByRank = std::vector<Matrix>;

// How ranks hold a parameter: all of it; slices of rows, which a reducer has made of the whole; or slices of columns,
// each with its own gradient, as tensor parallelism has them.
enum class Held { whole, rows, columns };

Tensor tensor_of(const Matrix& x, DType dtype) {
  Tensor result(Shape{x.rows(), x.cols()}, DType::f64);
  std::copy(x.data(), x.data() + x.size(), result.mutate<double>());
  return result.to(dtype);
}

Matrix matrix_of(const Tensor& x) {
  const std::vector<double> values = x.to(DType::f64).values();
  return Eigen::Map<const Matrix>(values.data(), x.shape()[0], x.shape()[1]);
}

Matrix rounded_in(DType dtype, const Matrix& x) { return matrix_of(tensor_of(x, dtype)); }

// Two parameters, of which the second matters for the norm alone.
class Step {
 public:
  static constexpr int64_t rows = 13, columns = 10;
  int ranks;
  DType dtype;
  uint64_t seed;
  OptimizerRule rule;
  Held held;
  Matrix weight = Matrix::Zero(rows, columns);  // before the step

  // Of gradients on each rank: (rows, columns), of which a rank that holds columns has its own.
  Matrix local(int rank, uint64_t parameter = 0) const {
    return rounded_in(dtype, (1 + 0.3 * rank) * drawn(100 * parameter + static_cast<uint64_t>(rank)));
  }
  Matrix previous() const { return rounded_in(dtype, drawn(50)); }
  Matrix gradient(uint64_t parameter = 0) const {
    if (held == Held::columns) return local(0, parameter);
    Matrix sum = Matrix::Zero(rows, columns);
    for (int r = 0; r < ranks; ++r) sum += local(r, parameter) / ranks;
    return sum;
  }
  double norm() const { return std::hypot(gradient(0).norm(), gradient(1).norm()); }
  double factor() const { return factor(norm()); }
  double factor(double by) const { return rule.clip == 0 ? 1 : std::min(1.0, rule.clip / by); }

  // By Weft's optimizer, in f32.
  Matrix made(const Matrix& of, double times, double rate_times = 1) const {
    const auto adjust = Muon::Adjust::match_rms_adamw;
    const Rule by = rule.kind == Kind::sgd     ? Rule(Sgd{.weight_decay = rule.weight_decay})
                    : rule.kind == Kind::adamw ? Rule(AdamW{.weight_decay = rule.weight_decay})
                                               : Rule(Muon{.weight_decay = rule.weight_decay, .adjust = adjust});
    Matrix before = weight;
    if (before.rows() != of.rows() || before.cols() != of.cols()) before = Matrix::Zero(of.rows(), of.cols());
    Parameter p("w", tensor_of(before, DType::f32));
    Optimizer optimizer({&p}, by);
    Gradients gradients;
    gradients.add(p, tensor_of(of, DType::f32));
    optimizer.step(gradients, rule.rate * rate_times, times);
    return rounded_in(dtype, matrix_of(p.value)) - before;
  }
  Matrix right() const { return made(gradient(), factor()); }

  Matrix slice(const Matrix& whole, int rank) const {
    if (held == Held::whole) return whole;
    const auto [begin, end] = range(rank);
    return held == Held::rows ? Matrix(whole.middleRows(begin, end - begin))
                              : Matrix(whole.middleCols(begin, end - begin));
  }
  ByRank on_each(const std::function<Matrix(int)>& of) const {
    ByRank all;
    for (int r = 0; r < ranks; ++r) all.push_back(of(r));
    return all;
  }
  ByRank slices(const Matrix& whole) const {
    return on_each([&](int r) { return slice(whole, r); });
  }

  verify::Dump dump(const ByRank& updates) const {
    verify::Dump dump;
    dump.ranks = ranks;
    if (held == Held::columns) dump.mesh = verify::Mesh{{{"tp", ranks}}};
    dump.counts = {{"local world", Matrix::Constant(1, 1, 2)}};
    dump.optimizer = rule;
    for (uint64_t i = 0; i < 2; ++i) {
      verify::ParameterEvidence& p = dump.parameters.emplace_back();
      p.name = i == 0 ? "w" : "v";
      p.precision = precision();
      p.layout = verify::plain_layout(verify::mesh_of(dump), verify::Reducer::mean);
      if (held == Held::rows) p.layout->reduced[0] = verify::placement_named("Shard(0)");
      if (held == Held::columns) p.layout->local[0] = p.layout->reduced[0] = verify::placement_named("Shard(1)");
      for (int r = 0; r < ranks; ++r) {
        const Matrix own = held == Held::columns ? slice(local(0, i), r) : local(r, i), after = slice(gradient(i), r);
        p.local.push_back({flat(own)}), p.local_shapes.push_back({own.rows(), own.cols()});
        p.reduced.push_back(rounded_in(dtype, flat(after))), p.reduced_shapes.push_back({after.rows(), after.cols()});
        p.previous.push_back(flat(slice(previous(), r)));
      }
    }
    verify::UpdateEvidence& update = dump.parameters[0].update.emplace();
    for (const Matrix& each : updates) {
      update.made.push_back(rounded_in(dtype, flat(each)));
      update.shapes.push_back({each.rows(), each.cols()});
    }
    update.precision = precision();
    if (!weight.isZero(0))
      for (int r = 0; r < ranks; ++r)
        update.weight.push_back(flat(updates[0].size() == weight.size() ? weight : slice(weight, r)));
    return dump;
  }
  std::string said(const ByRank& updates) const {
    const verify::Dump of = dump(updates);
    return verify::said(verify::update_verdict(of.parameters[0], of));
  }

  Matrix drawn(uint64_t number) const {
    const Tensor x = Tensor::uniform({rows, columns}, Random{seed, number}, -1, 1, DType::f64);
    return matrix_of(x);
  }

 private:
  static Matrix flat(const Matrix& x) { return x.reshaped<Eigen::RowMajor>(1, x.size()); }
  verify::Precision precision() const {
    return dtype == DType::bf16 ? verify::Precision{"bf16", 0x1p-8} : verify::Precision{"f32", 0x1p-23};
  }
  std::pair<int64_t, int64_t> range(int rank) const {  // as torch.chunk divides
    const int64_t extent = held == Held::rows ? rows : columns, length = (extent + ranks - 1) / ranks;
    return {std::min(extent, rank * length), std::min(extent, (rank + 1) * length)};
  }
};

OptimizerRule rule_of(Kind kind, double clip = 0) {
  OptimizerRule rule;
  rule.kind = kind, rule.rate = 0.02, rule.clip = clip;
  rule.adjust = OptimizerRule::Adjust::match_rms_adamw;
  return rule;
}

std::vector<Step> steps(Kind kind, Held held, double clip = 0) {
  std::vector<Step> all;
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (uint64_t seed = 1; seed <= 2; ++seed) all.push_back({ranks, dtype, seed, rule_of(kind, clip), held});
  return all;
}

const Kind kinds[] = {Kind::sgd, Kind::adamw, Kind::muon};

TEST_CASE("updates of Weft's optimizers are called correct", "[test_updates]") {
  int wrong = 0;
  for (const Kind kind : kinds)
    for (const Held held : {Held::whole, Held::rows, Held::columns})
      for (const double clip : {0.0, 0.5})
        for (Step& step : steps(kind, held, clip)) {
          const bool decays = step.seed == 2;
          if (decays) {
            step.weight = rounded_in(step.dtype, step.drawn(77));
            step.rule.weight_decay = 0.1;
          }
          std::vector<ByRank> dumped = {ByRank(static_cast<size_t>(step.ranks), step.right())};
          if (held != Held::whole) dumped.push_back(step.slices(step.right()));
          for (const ByRank& updates : dumped) {
            const std::string found = step.said(updates);
            if (found != "correct")
              UNSCOPED_INFO(int(kind) << " held " << int(held) << " clip " << clip << " on " << step.ranks << " in "
                                      << text(step.dtype) << (decays ? " with weights: " : ": ") << found);
            wrong += found != "correct";
          }
        }
  CHECK(wrong == 0);
}

struct Mistake {
  std::string name;
  std::vector<Kind> of;
  Held held;
  double clip;
  std::function<ByRank(const Step&)> plant;
  std::string said;
  bool in_bf16 = true;  // whether that can show it
};

std::vector<Mistake> mistakes() {
  const std::vector<Kind> all = {Kind::sgd, Kind::adamw, Kind::muon}, linear = {Kind::sgd}, muon = {Kind::muon};
  const auto of = [](std::function<Matrix(const Step&, int)> on_rank) {
    return [=](const Step& s) { return s.on_each([&](int r) { return on_rank(s, r); }); };
  };
  const auto only = [](std::function<bool(int)> takes) {
    return
        [=](const Step& s) { return s.on_each([&](int r) { return takes(r) ? s.right() : Matrix(0 * s.right()); }); };
  };
  return {
      {"of the local gradient", all, Held::whole, 0, of([](const Step& s, int r) { return s.made(s.local(r), 1); }),
       "S22"},
      {"of the gradient of the step before", all, Held::whole, 0,
       of([](const Step& s, int) { return s.made(s.previous(), 1); }), "S23"},
      {"of the sum", linear, Held::whole, 0, of([](const Step& s, int) { return s.made(s.ranks * s.gradient(), 1); }),
       "S8"},
      {"of a mean that is divided again", linear, Held::rows, 0,
       of([](const Step& s, int r) { return s.slice(s.made(s.gradient() / s.ranks, 1), r); }), "S9"},
      {"without a rank", all, Held::whole, 0,
       of([](const Step& s, int) { return s.made(s.gradient() - s.local(1) / s.ranks, 1); }), "S24 (without rank 1)"},
      {"of a rate that is divided", all, Held::whole, 0,
       of([](const Step& s, int) { return s.made(s.gradient(), 1, 0.5); }),
       "the update is 1/2 times what it should be"},
      {"of a last rank that weighs half", linear, Held::whole, 0,
       of([](const Step& s, int) { return s.made(s.gradient() - 0.5 * s.local(s.ranks - 1) / s.ranks, 1); }),
       "1 and 1/2 times what they should"},
      {"not clipped", linear, Held::whole, 0.5, of([](const Step& s, int) { return s.made(s.gradient(), 1); }),
       "S38 (not clipped)"},
      {"clipped by its own norm", linear, Held::rows, 0.5,
       of([](const Step& s, int r) { return s.slice(s.made(s.gradient(), s.factor(s.gradient().norm())), r); }),
       "S38 (by the norm of this parameter alone)"},
      {"clipped by the norm of slices", linear, Held::rows, 0.5, of([](const Step& s, int r) {
         const double norm = std::hypot(s.slice(s.gradient(0), r).norm(), s.slice(s.gradient(1), r).norm());
         return s.slice(s.made(s.gradient(), s.factor(norm)), r);
       }),
       "S38 (by the norm of each rank's slices)"},
      {"orthogonalized by rows", muon, Held::rows, 0,
       of([](const Step& s, int r) { return s.made(s.slice(s.gradient(), r), 1); }), "S37"},
      {"orthogonalized by columns", muon, Held::columns, 0,
       of([](const Step& s, int r) { return s.made(s.slice(s.gradient(), r), 1); }), "S37 (over tp)"},
      {"orthogonalized by rows, and gathered", muon, Held::rows, 0,
       [](const Step& s) {
         Matrix whole(0, Step::columns);
         for (int r = 0; r < s.ranks; ++r) {
           const Matrix above = whole, slice = s.made(s.slice(s.gradient(), r), 1);
           whole.resize(above.rows() + slice.rows(), Step::columns);
           whole << above, slice;
         }
         return ByRank(static_cast<size_t>(s.ranks), whole);
       },
       "S37"},
      {"broadcast before it came", all, Held::whole, 0, only([](int r) { return r == 1; }),
       "S26 (rank 1 alone takes the update)"},
      {"not taken by a rank", all, Held::whole, 0, only([](int r) { return r != 2; }),
       "S26 (rank 2 does not take the update)"},
      {"not gathered", all, Held::rows, 0,
       [](const Step& s) {
         return s.on_each([&](int r) {
           Matrix own = Matrix::Zero(Step::rows, Step::columns);
           const int64_t length = (Step::rows + s.ranks - 1) / s.ranks, begin = r * length;
           own.middleRows(begin, s.slice(own, r).rows()) = s.slice(s.right(), r);
           return own;
         });
       },
       "S26 (each rank updates its own slice only)"},
      {"in bf16",
       {Kind::sgd, Kind::adamw},
       Held::whole,
       0,
       of([](const Step& s, int) { return rounded_in(DType::bf16, s.right()); }),
       "S28 (in bf16, where the update is stored)",
       false},
  };
}

TEST_CASE("mistakes in what an optimizer makes of gradients are named or described", "[test_updates]") {
  int all = 0, right = 0, silent = 0, misnamed = 0;
  for (const Mistake& mistake : mistakes())
    for (const Kind kind : mistake.of)
      for (const Step& step : steps(kind, mistake.held, mistake.clip)) {
        if (step.dtype == DType::bf16 && !mistake.in_bf16) continue;
        const std::string found = step.said(mistake.plant(step));
        const bool as_it_is = found.find(mistake.said) != std::string::npos;
        ++all, right += as_it_is, silent += found == "correct", misnamed += !as_it_is && found != "unknown";
        if (!as_it_is)
          UNSCOPED_INFO(mistake.name << ", " << int(kind) << " on " << step.ranks << " in " << text(step.dtype) << ": "
                                     << found);
      }
  CHECK(right == all);
  CHECK(silent == 0);
  CHECK(misnamed == 0);
}

}  // namespace test_updates
