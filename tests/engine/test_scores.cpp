// SPDX-License-Identifier: Apache-2.0
// Tiled sums over scores against plain ops that keep all scores.
#include "weft/engine/ops/scores.h"

#include <array>

#include "tests/kernels/cuda_checks.h"
#include "tests/support/on_each_device.h"
#include "weft/engine/tensor/pool.h"

using namespace weft;

namespace test_scores {

constexpr ScoreSum kinds[] = {ScoreSum::log_sum_exp, ScoreSum::log_sum_exp_both, ScoreSum::softplus};

struct Case {
  ScoreSum kind = ScoreSum::log_sum_exp;
  int64_t m = 1, n = 1, d = 1;
  double scale = 1;
  bool excluding = false, aiming = false;
  DType dtype = DType::f64;

  Tensor draw(const Shape& shape, uint64_t stream) const {  // rows of length about 1, equal in all types
    return Tensor::normal(shape, {3, stream}, 0, 1 / std::sqrt(static_cast<double>(d)), DType::bf16).to(dtype);
  }
  std::vector<Tensor> inputs() const {
    return {draw({m, d}, 0), draw({n, d}, 1), Tensor::full({}, scale, dtype), Tensor::full({}, -0.5, dtype)};
  }
  Tensor seed() const {  // because all results are f64
    const bool scores = aiming && kind != ScoreSum::softplus;
    const int64_t count = (scores ? 2 : 1) * m + (kind == ScoreSum::log_sum_exp_both ? n : 0);
    return Tensor::uniform({count}, {8}, -1, 1, DType::bf16).to(DType::f64);
  }
  // Three targets per row, at tile edges; one may occur twice.
  Tensor excluded() const {
    Tensor columns({m, 3}, DType::i64);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t e = 0; e < 3; ++e)
        columns.mutate<int64_t>()[3 * i + e] = std::array{i % n, (i * 7 + 1) % 3 ? n - 1 : -1, 383 % n}[size_t(e)];
    return columns;
  }
  Tensor targets() const {
    Tensor columns({m}, DType::i64);
    for (int64_t i = 0; i < m; ++i) columns.mutate<int64_t>()[i] = i % 5 == 3 ? -1 : i * 31 % n;
    return columns;
  }
};

Var tiled(const Case& c, std::span<const Var> x) {
  const auto at = [&](bool wanted, const Tensor& columns) { return wanted ? Var(columns.to(x[0].device())) : Var(); };
  const Var excluded = at(c.excluding, c.excluding ? c.excluded() : Tensor());
  const Var targets = at(c.aiming, c.aiming ? c.targets() : Tensor());
  if (c.kind == ScoreSum::softplus) return score_softplus_sum(x[0], x[1], x[2], x[3], targets);
  if (c.kind == ScoreSum::log_sum_exp_both) return score_log_sum_exp_both(x[0], x[1], x[2], targets);
  return score_log_sum_exp(x[0], x[1], x[2], excluded, targets);
}

Var wide(const Var& scalar, const Var& like) { return reshape(repeat(scalar, 0, like.size()), like.shape()); }

Tensor mask(const Tensor& columns, int64_t m, int64_t n) {
  Tensor mask = Tensor::zeros({m, n}, DType::u8);
  for (int64_t i = 0; i < columns.size(); ++i)
    if (const int64_t j = columns.data<int64_t>()[i]; j >= 0)
      mask.mutate<uint8_t>()[i * m / columns.size() * n + j] = 1;
  return mask;
}

Var plain_sums(const Case& c, const Var& z) {
  if (c.kind == ScoreSum::softplus) return sum(softplus(z), 1);
  if (c.kind == ScoreSum::log_sum_exp_both) return concat({log_sum_exp(z, 1), log_sum_exp(z, 0)}, 0);
  if (!c.excluding) return log_sum_exp(z, 1);
  const Var nowhere = Tensor::full(z.shape(), -infinity, z.dtype());
  return log_sum_exp(where(Var(mask(c.excluded(), c.m, c.n)), nowhere, z), 1);
}
Var plain(const Case& c, std::span<const Var> x) {
  const Var products = matmul(x[0], x[1], Transpose::no, Transpose::yes);
  Var z = products * wide(x[2], products);
  if (c.kind == ScoreSum::softplus) z = z + wide(x[3], z);
  if (!c.aiming) return plain_sums(c, z);
  const Var chosen = mask(c.targets(), c.m, c.n).to(z.dtype()).to(z.device());
  if (c.kind == ScoreSum::softplus) return plain_sums(c, z * affine(chosen, -2, 1));
  return concat({plain_sums(c, z), sum(z * chosen, 1)}, 0);
}

struct Graded {
  Tensor value;
  std::vector<Tensor> gradients;
};
template <class F> Graded graded(const Case& c, const F& f) {
  Tape tape;
  std::vector<Var> x;
  for (const Tensor& t : c.inputs()) x.push_back(tape.watch(t));
  const Var y = f(c, x);
  Graded result{y.value(), {}};
  for (const Var& g : tape.gradient(y, Var(c.seed().to(y.dtype())), x)) result.gradients.push_back(g.value());
  return result;
}

// The largest difference of two elements, relative to the largest element.
double apart(const Tensor& a, const Tensor& b) {
  const Values x = a.values(), y = b.values();
  double most = 1e-3, difference = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    most = std::max(most, std::abs(y[i]));
    difference = x[i] == y[i]          ? difference
                 : std::isfinite(x[i]) ? std::max(difference, std::abs(x[i] - y[i]))
                                       : infinity;
  }
  return difference / most;
}
double apart(const Graded& a, const Graded& b) {
  double most = apart(a.value, b.value);
  for (size_t i = 0; i < a.gradients.size(); ++i) most = std::max(most, apart(a.gradients[i], b.gradients[i]));
  return most;
}

std::vector<Case> around_the_edges_of_tiles() {
  std::vector<Case> cases;
  for (const ScoreSum kind : kinds)
    for (const auto [m, n, d] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                    {2, 5, 0},
                                                                    {0, 3, 2},
                                                                    {3, 0, 2},
                                                                    {9, 47, 3},
                                                                    {125, 383, 17},
                                                                    {126, 384, 16},
                                                                    {127, 385, 33},
                                                                    {253, 800, 64},
                                                                    {20, 193, 128},
                                                                    {30, 97, 400}})
      for (const double scale : {1.0, -3.0, 100.0, 0.0})
        for (const auto [excluding, aiming] :
             std::vector<std::array<bool, 2>>{{false, false}, {true, false}, {false, true}})
          if (n > 0 || (!excluding && !aiming)) cases.push_back({kind, m, n, d, scale, excluding, aiming});
  return cases;
}

std::string text(const Case& c) {
  return std::to_string(int(c.kind)) + ": " + std::to_string(c.m) + " x " + std::to_string(c.n) + " x " +
         std::to_string(c.d) + " scale " + std::to_string(c.scale) + (c.excluding ? " excluding" : "") +
         (c.aiming ? " aiming" : "");
}

TEST_CASE("tiled score sums equal plain ops in values and all gradients at every size and tile edge") {
  for (Case c : around_the_edges_of_tiles()) {
    INFO(text(c));
    const Graded expected = graded(c, plain);
    CHECK(apart(graded(c, tiled), expected) <= 1e-12);
    c.dtype = DType::f32;
    CHECK(apart(graded(c, tiled), expected) <= 2 * apart(graded(c, plain), expected) + 1e-5);
  }
}

TEST_CASE("bf16 scores are summed in f32 and rounded once") {
  for (const ScoreSum kind : kinds) {
    Case c{kind, 130, 400, 16, 2};
    const Graded expected = graded(c, plain);
    c.dtype = DType::bf16;
    INFO(text(c));
    CHECK(apart(graded(c, tiled), expected) <= 0x1p-8);
  }
}

TEST_CASE("score sums and gradients of a row have the same bits whatever the other rows are") {
  for (const double scale : {1.0, 100.0})
    for (const ScoreSum kind : {ScoreSum::log_sum_exp, ScoreSum::softplus}) {
      const Case c{kind, 300, 500, 20, scale, false, false, DType::f32};
      INFO(text(c));
      const std::vector<Tensor> in = c.inputs();
      const auto of_rows = [&](int64_t begin, int64_t end) {
        Tape tape;
        const Var q = tape.watch(in[0].slice(begin, end));
        const Var y = tiled(c, std::vector<Var>{q, in[1], in[2], in[3]});
        return std::array{y.value(), tape.gradient(y, Var(c.seed().slice(begin, end)), {q})[0].value()};
      };
      const auto all = of_rows(0, 300), again = of_rows(0, 300), some = of_rows(101, 260);
      for (const size_t i : {0, 1}) {
        CHECK(all[i].values() == again[i].values());
        CHECK(all[i].slice(101, 260).values() == some[i].values());
      }
    }
}

TEST_CASE_METHOD(OnEachDevice, "the log-sum-exp of no scores is minus infinity, with zero first and second gradients") {
  Tape tape;
  const Var q = tape.watch(random({2, 3})), k = tape.watch(random({3, 3}, 1)), scale = tape.watch(full({}, 2));
  const Var y = score_log_sum_exp(q, k, scale, i64({2, 3}, {0, 1, 2, -1, -1, 1}));
  CHECK(values_of(y)[0] == -infinity);
  CHECK(std::isfinite(values_of(y)[1]));
  for (const Graph graph : {Graph::none, Graph::create}) {
    const std::vector<Var> g = tape.gradient(y, Var(f64({2}, {1, 0})), {q, k, scale}, graph);
    for (const Var& each : g) CHECK(values_of(each) == Values(static_cast<size_t>(each.size()), 0));
    if (graph == Graph::none) continue;
    for (const Var& each : tape.gradient(sum(g[0] * g[0]) + g[2], {q, k, scale}))
      CHECK(values_of(each) == Values(static_cast<size_t>(each.size()), 0));
  }
  const Var none = Tensor::zeros({0, 3}, DType::f64, device);
  CHECK(values_of(score_log_sum_exp_both(q, none, scale)) == Values(2, -infinity));
  CHECK(values_of(score_log_sum_exp_both(none, k, scale)) == Values(3, -infinity));
  CHECK(values_of(score_softplus_sum(q, none, scale, scale)) == Values(2, 0));
}

TEST_CASE_METHOD(OnEachDevice, "recorded gradients of score sums equal those of the kernels") {
  for (const ScoreSum kind : kinds) {
    const Case c{kind, 5, 7, 3, 2, true, true};
    Tape tape;
    std::vector<Var> x;
    for (const Tensor& t : c.inputs()) x.push_back(tape.watch(t.to(device)));
    const Var y = tiled(c, x);
    const Var seed = c.seed().to(device);
    const std::vector<Var> by_kernels = tape.gradient(y, seed, x), by_ops = tape.gradient(y, seed, x, Graph::create);
    for (size_t i = 0; i < x.size(); ++i) CHECK(distance(by_kernels[i], by_ops[i]) <= 1e-13);
  }
}

TEST_CASE_METHOD(OnEachDevice, "NaN and infinite scores affect only the sums that contain them") {
  const Var k = f64({3, 1}, {1, 2, 3}), scale = full({}, 1);
  for (const double one : {1.0, 1e3}) {  // without and with a running maximum
    const Values y = values_of(score_log_sum_exp(f64({3, 1}, {not_a_number, one, 0}), k, scale));
    CHECK(std::isnan(y[0]));
    CHECK(std::isfinite(y[1]));
    CHECK(y[2] == Approx(std::log(3)));
  }
  const Values y = values_of(score_log_sum_exp_both(f64({2, 1}, {infinity, 1}), k, scale));
  CHECK(y[0] == infinity);
  CHECK(std::isfinite(y[1]));
  for (size_t column = 2; column < 5; ++column) CHECK(y[column] == infinity);
}

TEST_CASE("score sums and their gradients stay finite for scores far below and far above zero") {
  for (const DType type : {DType::f32, DType::f64})
    for (const double z : {-5000.0, 5000.0}) {
      Tape tape;
      const Var q = tape.watch(Tensor::full({130, 1}, 1, type)), k = tape.watch(Tensor::full({400, 1}, z, type));
      const Var y = score_log_sum_exp_both(q, k, Tensor::full({}, 1, type));
      const Values sums = values_of(y);
      for (int64_t i = 0; i < 530; ++i)
        CHECK(sums[static_cast<size_t>(i)] == Approx(z + std::log(i < 130 ? 400 : 130)).epsilon(1e-6));
      for (const Var& g : tape.gradient(y, Var(Tensor::full({530}, 1, DType::f64)), {q, k}))
        CHECK(std::isfinite(values_of(sum(g))[0]));
    }
}

TEST_CASE("score sums use memory for one tile and the gradients, not for all scores") {
  const auto extra = [](int64_t b) {
    const Case c{ScoreSum::log_sum_exp_both, b, b, 32, 10, false, false, DType::f32};
    const std::vector<Tensor> in = c.inputs();
    const MemoryStatistics before = pool::statistics();
    const Tensor ballast({before.peak_bytes - before.live_bytes}, DType::u8);  // any new allocation is a peak
    const int64_t peak = pool::statistics().peak_bytes;
    Tape tape;
    std::vector<Var> x;
    for (const Tensor& t : in) x.push_back(tape.watch(t));
    const Var y = tiled(c, x);
    const std::vector<Var> g = tape.gradient(y, Var(c.seed()), x);
    return pool::statistics().peak_bytes - peak;
  };
  const int64_t small = extra(1024), large = extra(2048);
  CHECK(small > 2 * 1024 * 32 * 4);
  CHECK(large <= 2.1 * static_cast<double>(small));
  CHECK(large < 2048 * 2048);  // a quarter of the memory of all scores
}

TEST_CASE("score sums refuse bad input with the reason") {
  const Var q = Tensor::zeros({2, 3}), k = Tensor::zeros({4, 3}), scale = Tensor::full({}, 1);
  using Catch::Contains;
  CHECK_THROWS_WITH(score_log_sum_exp(q, Tensor::zeros({4, 2}), scale), Contains("(2, 3)") && Contains("(4, 2)"));
  CHECK_THROWS_WITH(score_log_sum_exp_both(q, Tensor::zeros({4, 3}, DType::f64), scale), Contains("f64"));
  CHECK_THROWS_WITH(score_log_sum_exp(q, k, Tensor::full({2}, 1)), Contains("scalars"));
  CHECK_THROWS_WITH(score_softplus_sum(q, k, scale, Tensor::full({}, 1, DType::f64)), Contains("scalars"));
  CHECK_THROWS_WITH(score_softplus_sum(q, k, scale, {}), Contains("empty"));
  CHECK_THROWS_WITH(score_log_sum_exp(q, k, scale, Tensor::zeros({3, 1}, DType::i64)), Contains("excluded"));
  CHECK_THROWS_WITH(score_log_sum_exp(q, k, scale, Tensor::full({2, 1}, 4, DType::i64)),
                    "score_log_sum_exp: excluded column 4 at position 0 is not in 0..3");
  CHECK_THROWS_WITH(score_log_sum_exp_both(q, k, scale, Tensor::zeros({3}, DType::i64)), Contains("2 rows"));
  CHECK_THROWS_WITH(score_log_sum_exp_both(q, k, scale, Tensor::full({2}, 4, DType::i64)),
                    "score_log_sum_exp_both: target 4 at position 0 is not in 0..3");
}

// Several tiles of an emulated card, uneven in rows and in columns.
TEST_CASE("the card's score sums and gradients equal the CPU's to 64 units (bf16 gradients 1)") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const ScoreSum kind : kinds)
      for (const bool excluding : {false, true}) {
        const Case c{kind, 300, 700, 8, 2, excluding && kind == ScoreSum::log_sum_exp, true, type};
        INFO(text(c));
        const bool shifted = kind == ScoreSum::softplus;
        Tensors in = c.inputs();
        in.insert(in.end(), {c.seed(), c.excluded(), c.targets()});
        const auto scores = [&](const Tensors& x) {
          const auto excluded = c.excluding ? std::optional(columns(x[5], c.n)) : std::nullopt;
          return Scores{x[0], x[1], x[2], shifted ? &x[3] : nullptr, excluded, columns(x[6], c.n)};
        };
        Tensor sums = c.seed();
        const double of_scores = type == DType::f64 ? 64 : 64 * 0x1p29;  // sums are f64, computed from f32 scores
        compare(of_scores, in, {sums},
                [&](Backend& d, const Tensors& x, Tensors& y) { d.score_sums(kind, scores(x), y[0]); });
        backend(Device::cpu).score_sums(kind, scores(in), sums);
        in.push_back(sums);
        compare(units(type, 64), in, {in[0], in[1], in[2], in[3]}, [&](Backend& d, const Tensors& x, Tensors& y) {
          ScoreGradients to{y[0], y[1], y[2], shifted ? y[3] : Tensor()};
          d.score_gradients(kind, scores(x), x[7], x[4], to);
        });
      }
}

// As many as a card multiplies as sums of halves, and whose gradients it adds up in parts of bf16.
TEST_CASE("the card's gradients of many f32 scores are as exact as products in f32") {
  SKIP_WITHOUT_A_CARD();
  for (const ScoreSum kind : kinds) {
    const Case c{kind, 1000, 2100, 64, 10, false, true};
    INFO(text(c));
    const auto drawn = [&](int64_t rows, uint64_t stream) {  // so that the gradient of the scale does not cancel out
      return Tensor::normal({rows, c.d}, {7, stream}, 0, 0.125);
    };
    const Tensor q = drawn(c.m, 0), k = drawn(c.n, 1);
    const auto graded_on = [&](Device device, DType type, const auto& f) {
      Tape tape;
      std::vector<Var> x;
      for (const Tensor& t : {q, k, Tensor::full({}, c.scale), Tensor::full({}, -0.5)})
        x.push_back(tape.watch(t.to(type).to(device)));
      const Var y = f(x);
      Graded result{y.value().to(Device::cpu), {}};
      for (const Var& g : tape.gradient(y, Var(c.seed().to(y.dtype()).to(device)), x))
        result.gradients.push_back(g.value().to(Device::cpu));
      return result;
    };
    const auto in_tiles = [&](std::span<const Var> x) { return tiled(c, x); };
    const auto by_ops = [&](std::span<const Var> x) { return plain(c, x); };
    const Graded exact = graded_on(Device::cpu, DType::f64, in_tiles),
                 in_f32 = graded_on(Device::cuda, DType::f32, by_ops),
                 in_parts = graded_on(Device::cuda, DType::f32, in_tiles);
    CHECK(apart(in_parts.value, exact.value) <= 2 * apart(in_f32.value, exact.value));
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      INFO("the gradient of input " << i);
      const double by_chance = exact.gradients[i].size() == 1 ? 0x1p-20 : 0;  // one number may be nearly exact
      CHECK(apart(in_parts.gradients[i], exact.gradients[i]) <=
            2 * apart(in_f32.gradients[i], exact.gradients[i]) + by_chance);
    }
  }
}

}  // namespace test_scores
