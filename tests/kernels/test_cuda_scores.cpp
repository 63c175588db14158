// SPDX-License-Identifier: Apache-2.0
// Sums over scores on the card, and their gradients, in many tiles and as products of halves.
#include "tests/kernels/cuda_checks.h"

using namespace weft;

namespace {

constexpr ScoreSum kinds[] = {ScoreSum::log_sum_exp, ScoreSum::log_sum_exp_both, ScoreSum::softplus};

}  // namespace

TEST_CASE("scores in more than one tile on the card have the CPU's sums to 2^20 units") {
  SKIP_WITHOUT_A_CARD();
  constexpr int64_t m = 3700, n = 4100;  // half of 50 MiB of cache holds 3.3 million of these scores
  const Tensor q = Tensor::arange(m, DType::f64).reshape({m, 1});  // so that later tiles have greater scores
  const Tensor k = sample({n, 1}, DType::f64), scale = Tensor::full({}, 0.125, DType::f64);
  const auto scores = [](const Tensors& x) {
    return Scores{x[0], x[1], x[2], nullptr, columns(x[3], n), columns(x[4], n)};
  };
  constexpr ScoreSum kind = ScoreSum::log_sum_exp_both;
  Tensor sums = sample({2 * m + n}, DType::f64);
  Tensors in = {q, k, scale, integers({m, 1}, n), integers({m}, n)};
  compare(0x1p20, in, {sums}, [&](Backend& d, const Tensors& x, Tensors& y) { d.score_sums(kind, scores(x), y[0]); });
  backend(Device::cpu).score_sums(kind, scores(in), sums);
  in.insert(in.end(), {sums, sample(sums.shape(), DType::f64, -1, 1)});
  compare(0x1p20, in, {q, k, scale}, [&](Backend& d, const Tensors& x, Tensors& y) {
    ScoreGradients to{y[0], y[1], y[2], Tensor()};
    d.score_gradients(kind, scores(x), x[5], x[6], to);
  });
}

TEST_CASE("rows without scores on the card have empty sums, and targets outside score zero") {
  SKIP_WITHOUT_A_CARD();
  const Tensors in = {sample({4, 3}, DType::f32), sample({0, 3}, DType::f32), Tensor::full({}, 2, DType::f32),
                      Tensor::full({4}, -1, DType::i64)};
  for (const ScoreSum kind : kinds)
    compare(0, in, {sample({kind == ScoreSum::softplus ? 4 : 8}, DType::f64)},
            [&](Backend& d, const Tensors& x, Tensors& y) {
              d.score_sums(kind, Scores{x[0], x[1], x[2], nullptr, {}, columns(x[3], 0)}, y[0]);
            });
}

TEST_CASE("gradients of scores of bf16 rows on the card are those of exact slopes to one unit") {
  SKIP_WITHOUT_A_CARD();
  const Tensor q = sample({50, 1}, DType::bf16, -1, 1);
  Tensor k = Tensor::full({2, 1}, 1, DType::bf16);  // opposite ones: nearly all of two slopes cancels out
  k.slice(1, 2).copy_from(Tensor::full({1, 1}, -1, DType::bf16));
  Tensors in = {q, k, Tensor::full({}, 0.125, DType::bf16)};
  const auto scores = [](const Tensors& x) { return Scores{x[0], x[1], x[2], nullptr, {}, {}}; };
  for (const ScoreSum kind : kinds) {
    Tensor sums = sample({kind == ScoreSum::log_sum_exp_both ? 52 : 50}, DType::f64);
    compare(0x1p30, in, {sums}, [&](Backend& d, const Tensors& x, Tensors& y) { d.score_sums(kind, scores(x), y[0]); });
    backend(Device::cpu).score_sums(kind, scores(in), sums);
    Tensors with_slopes = in;
    with_slopes.insert(with_slopes.end(), {sums, Tensor::full(sums.shape(), 1024, DType::f64)});
    compare(1, with_slopes, {q, k, in[2]}, [&](Backend& d, const Tensors& x, Tensors& y) {
      ScoreGradients to{y[0], y[1], y[2], Tensor()};
      d.score_gradients(kind, scores(x), x[3], x[4], to);
    });
  }
}

namespace {

// As many scores as a card multiplies as sums of halves.
constexpr int64_t m = 600, n = 1100, width = 256;

struct OfHalves {
  Tensor q = Tensor::normal({m, width}, {1}, 0, 0.0625), k = Tensor::normal({n, width}, {2}, 0, 0.0625);
  Tensor scale = Tensor::full({}, 3);

  // The sums, and what `use(scores on the card, sums)` makes of them.
  template <class Use> Tensor sums_on_card(ScoreSum kind, const Use& use) const {
    const Tensor x = q.to(Device::cuda), y = k.to(Device::cuda), factor = scale.to(Device::cuda);
    const Scores scores{x, y, factor, nullptr, {}, {}};
    Tensor sums({kind == ScoreSum::log_sum_exp_both ? m + n : m}, DType::f64, Device::cuda);
    backend(Device::cuda).score_sums(kind, scores, sums);
    use(scores, sums);
    return sums;
  }
  std::vector<double> log_sum_exps_on_card() const {
    return sums_on_card(ScoreSum::log_sum_exp, [](const Scores&, const Tensor&) {}).values();
  }
  // Sums and the gradients of q, k and scale.
  std::array<Tensor, 4> gradients_on_card() const {
    constexpr ScoreSum kind = ScoreSum::log_sum_exp_both;
    ScoreGradients to;
    const Tensor sums = sums_on_card(kind, [&](const Scores& scores, const Tensor& of) {
      to = {Tensor::like(scores.q), Tensor::like(scores.k), Tensor::like(scores.scale), Tensor()};
      const Tensor slopes = Tensor::uniform(of.shape(), {3}, -1, 1, DType::f64).to(Device::cuda);
      backend(Device::cuda).score_gradients(kind, scores, of, slopes, to);
    });
    return {sums, to.q, to.k, to.scale};
  }
};
Tensor times(const Tensor& x, double factor) {
  Tensor y = x.to(Device::cpu).clone();
  for (float& value : std::span(y.mutate<float>(), static_cast<size_t>(y.size()))) value *= static_cast<float>(factor);
  return y;
}

}  // namespace

TEST_CASE("many f32 scores on the card have the same bits for rows that are small, if the others are large") {
  SKIP_WITHOUT_A_CARD();
  const OfHalves usual;
  const auto [sums, q, k, scale] = usual.gradients_on_card();
  for (const auto& [of_q, of_k] : {std::pair(0x1p-60, 0x1p50), {0x1p3, 0x1p-3}}) {
    INFO("q times " << of_q);
    const OfHalves other = {times(usual.q, of_q), times(usual.k, of_k), times(usual.scale, 1 / (of_q * of_k))};
    const auto [other_sums, other_q, other_k, other_scale] = other.gradients_on_card();
    CHECK(close(other_sums, sums, 0));
    CHECK(close(other_q, times(q, 1 / of_q), 0));
    CHECK(close(other_k, times(k, 1 / of_k), 0));
    CHECK(close(other_scale, times(scale, of_q * of_k), 0));
  }
}

TEST_CASE("NaN and infinite rows among many f32 ones on the card affect only their own scores") {
  SKIP_WITHOUT_A_CARD();
  const auto with_row = [](double a, double b) {
    OfHalves x;
    x.q.slice(7, 8).copy_from(Tensor::full({1, width}, a));
    x.q.slice(300, 301).copy_from(Tensor::full({1, width}, b));
    return x.log_sum_exps_on_card();
  };
  const std::vector<double> finite = with_row(0, 0), broken = with_row(not_a_number, infinity);
  for (size_t row = 0; row < m; ++row)
    if (row == 7 || row == 300)
      CHECK(!std::isfinite(broken[row]));
    else
      CHECK(broken[row] == finite[row]);
}

TEST_CASE("many f32 scores of rows of zeros on the card are zero") {
  SKIP_WITHOUT_A_CARD();
  OfHalves x;
  x.q = Tensor::zeros(x.q.shape());
  for (const double sum : x.log_sum_exps_on_card()) CHECK(sum == Approx(std::log(n)));
}
