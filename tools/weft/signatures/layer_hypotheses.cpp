// SPDX-License-Identifier: Apache-2.0
// What each mistake in a batch normalization over all ranks makes of the gradient at its input.
//
//   y = weight xhat + bias,   xhat = (x - mean) / sigma
//   dx = 1 / sigma (g - w sum g - xhat w sum(g xhat)),   g = weight dy
//
// where w is what each row weighs in a mean: 1 / B, if all is right.
#include <algorithm>
#include <functional>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

// The rows of a sample, normalized by its statistics, and the gradient at the result.
struct Normalized {
  Sample sample;
  Matrix xhat, g, products, by_sigma;

  Normalized(Sample given, const LayerEvidence& layer, const Rounding& rounding) : sample(std::move(given)) {
    const Matrix& x = sample.towers[0];
    Matrix mean = sample.weights.transpose() * x;
    rounding.apply(mean);
    const Matrix centered = x - mean.replicate(x.rows(), 1);
    Matrix variance = sample.weights.transpose() * centered.cwiseAbs2();
    rounding.apply(variance);
    by_sigma = (variance.array() + layer.epsilon).rsqrt();
    xhat = centered * by_sigma.row(0).asDiagonal();
    g = sample.towers[1] * layer.weight.row(0).asDiagonal();
    rounding.apply(xhat);
    rounding.apply(g);
    products = g.cwiseProduct(xhat);
    rounding.apply(products);
  }
  // Of the rows of a rank, where the sums of g and of g xhat, each times w, are these.
  Matrix gradient(size_t rank, const Matrix& sum, const Matrix& sum_of_products) const {
    const Matrix own = sample.of_rank(xhat, rank);
    const Matrix pulled = own * sum_of_products.row(0).asDiagonal();
    return (sample.of_rank(g, rank) - sum.replicate(own.rows(), 1) - pulled) * by_sigma.row(0).asDiagonal();
  }
  // The same with sums over the given rows, where each row of the rank weighs `weight`.
  Matrix gradient(size_t rank, const Matrix& of_g, const Matrix& of_products, double weight) const {
    return gradient(rank, weight * of_g.colwise().sum(), weight * of_products.colwise().sum());
  }
};

struct LayerModel {
  const LayerEvidence& layer;
  const Rounding& rounding;
  Normalized whole = {whole_batch({layer.x, layer.by_y}), layer, rounding};
  std::vector<Hypothesis> all = {};

  size_t ranks() const { return layer.x.size(); }
  double count() const { return static_cast<double>(ranks()); }
  double rows() const { return static_cast<double>(whole.g.rows()); }
  double rows(size_t r) const { return std::max(1.0, static_cast<double>(layer.x[r].rows())); }

  void add(const char* id, std::string variant, const std::function<Matrix(size_t rank)>& gradient) {
    Prediction prediction;
    for (size_t r = 0; r < ranks(); ++r) prediction.tensors.push_back(gradient(r));
    all.push_back({&signature(id), std::move(variant), std::move(prediction)});
  }
  Matrix from_all(size_t r, double weight) const { return whole.gradient(r, whole.g, whole.products, weight); }
  Matrix from_own(size_t r, double weight) const {
    return whole.gradient(r, whole.sample.of_rank(whole.g, r), whole.sample.of_rank(whole.products, r), weight);
  }
  // Where the mean has a gradient from the variance, too: the sum of all ranks' deviations is zero, but not of one's.
  Matrix from_own_deviations(size_t r) const {
    const Matrix sum_of_products = whole.sample.of_rank(whole.products, r).colwise().sum() / rows();
    const Matrix deviations = whole.sample.of_rank(whole.xhat, r).colwise().sum() / rows();
    const Matrix sum = whole.sample.of_rank(whole.g, r).colwise().sum() / rows();
    return whole.gradient(r, sum - deviations.cwiseProduct(sum_of_products), sum_of_products);
  }
  // By statistics in which rows weigh something else.
  void add_weighted(const char* id, std::string variant, Sample sample) {
    const Normalized other(std::move(sample), layer, rounding);
    const Matrix sum = other.g.colwise().sum(), of_products = other.products.colwise().sum();
    add(id, std::move(variant), [&](size_t r) {
      const double weight = layer.x[r].rows() == 0 ? 0 : other.sample.weights[other.sample.first[r]];
      return other.gradient(r, weight * sum, weight * of_products);
    });
  }

  void add_sums_of_backward() {
    add("S1", "statistics are constants", [&](size_t r) { return from_all(r, 0); });
    add("S6", "", [&](size_t r) { return from_all(r, 1 / (count() * rows())); });
    add("S7", "", [&](size_t r) { return from_all(r, count() / rows()); });
    add("S10", "sums of squares", [&](size_t r) { return from_own(r, 1 / rows()); });
    add("S10", "sums of squared deviations", [&](size_t r) { return from_own_deviations(r); });
    add("S21b", "", [&](size_t r) { return from_own(r, 1 / rows(r)); });
  }
  void add_statistics() {
    add("S21a", "", [&](size_t r) {
      const Normalized own(own_rows({layer.x, layer.by_y}, r, 1), layer, rounding);
      return own.gradient(0, own.g, own.products, 1 / rows(r));
    });
    if (std::ranges::all_of(layer.x, [&](const Matrix& m) { return m.rows() == layer.x[0].rows(); })) return;
    add_weighted("S12", "statistics", mean_of_means({layer.x, layer.by_y}));
    add_weighted("S13", "", padded({layer.x, layer.by_y}));
    Matrix sum = Matrix::Zero(1, whole.g.cols()), of_products = sum;
    for (size_t r = 0; r < ranks(); ++r) {
      sum += whole.sample.of_rank(whole.g, r).colwise().sum() / (count() * rows(r));
      of_products += whole.sample.of_rank(whole.products, r).colwise().sum() / (count() * rows(r));
    }
    add("S12", "sums of the backward", [&](size_t r) { return whole.gradient(r, sum, of_products); });
  }
};

}  // namespace

Observed observed(const LayerEvidence& layer) { return observed(layer.name + ", input of rank ", layer.by_x); }

std::vector<Hypothesis> hypotheses(const LayerEvidence& given, const Rounding& rounding) {
  LayerEvidence layer = given;
  for (std::vector<Matrix>* of_ranks : {&layer.x, &layer.by_y})
    for (Matrix& m : *of_ranks) rounding.apply(m);
  LayerModel model{layer, rounding};
  model.add("S0", "", [&](size_t r) { return model.from_all(r, 1 / model.rows()); });
  model.add_sums_of_backward();
  model.add_statistics();
  return std::move(model.all);
}

}  // namespace weft::verify
