// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/truth.h"

#include <cmath>

#include "weft/engine/tensor/error.h"

namespace weft::verify {
namespace {

// Rows minus their mean, and the variance of each column, as one row.
struct Centered {
  const Eigen::VectorXd& weights;
  const Rounding& rounding;
  Matrix rows, variance;

  Centered(const Matrix& x, const Eigen::VectorXd& weights, const Rounding& rounding)
      : weights(weights), rounding(rounding) {
    Matrix mean = weights.transpose() * x;
    rounding.apply(mean);
    rows = x - mean.replicate(x.rows(), 1);
    variance = weights.transpose() * rows.cwiseAbs2();
    rounding.apply(variance);
  }
  // The gradient with respect to x, of those with respect to the rows, and to the variance.
  Matrix back(Matrix by_rows, const Matrix& by_variance) const {
    by_rows += 2 * weights.asDiagonal() * rows * by_variance.row(0).asDiagonal();
    rounding.apply(by_rows);
    return by_rows - weights * by_rows.colwise().sum();
  }
  Matrix no_rows() const { return Matrix::Zero(rows.rows(), rows.cols()); }
  Matrix no_variance() const { return Matrix::Zero(1, rows.cols()); }
};

Matrix without_diagonal(Matrix square) {
  square.diagonal().setZero();
  return square;
}

Term vicreg_invariance(const Sample& sample, double lambda) {
  const Matrix difference = sample.towers[0] - sample.towers[1];
  const Matrix by_first =
      2 * lambda / static_cast<double>(difference.cols()) * sample.weights.asDiagonal() * difference;
  return {"invariance", true, {by_first, -by_first}};
}

std::vector<Term> vicreg(const Sample& sample, const Options& options, const Rounding& rounding) {
  Term variance{"variance", false, {}}, covariance{"covariance", false, {}};
  for (const Matrix& view : sample.towers) {
    const Centered x(view, sample.weights, rounding);
    const double n = static_cast<double>(view.rows()), d = static_cast<double>(view.cols()), unbiased = n / (n - 1);
    const auto deviation = (unbiased * x.variance.array() + options.at("epsilon")).sqrt();
    const Matrix by_variance =
        (deviation < options.at("gamma")).select(-options.at("mu") / 4 * unbiased / d / deviation, 0);
    variance.gradients.push_back(x.back(x.no_rows(), by_variance));

    Matrix products = x.rows.transpose() * sample.weights.asDiagonal() * x.rows;
    rounding.apply(products);
    const Matrix by_products = 2 * options.at("nu") * unbiased * unbiased / d * without_diagonal(products);
    covariance.gradients.push_back(x.back(2 * sample.weights.asDiagonal() * x.rows * by_products, x.no_variance()));
  }
  return {vicreg_invariance(sample, options.at("lambda")), variance, covariance};
}

std::vector<Term> barlow_twins(const Sample& sample, const Options& options, const Rounding& rounding) {
  const bool normalizes = options.at("normalize") != 0;
  const Centered first(sample.towers[0], sample.weights, rounding), second(sample.towers[1], sample.weights, rounding);
  const auto scale = [&](const Centered& x) { return Matrix((x.variance.array() + options.at("epsilon")).rsqrt()); };
  const Matrix scales[] = {scale(first), scale(second)};
  const Matrix a = normalizes ? Matrix(first.rows * scales[0].row(0).asDiagonal()) : sample.towers[0];
  const Matrix b = normalizes ? Matrix(second.rows * scales[1].row(0).asDiagonal()) : sample.towers[1];
  Matrix products = a.transpose() * sample.weights.asDiagonal() * b;
  rounding.apply(products);

  Matrix by_products = 2 * options.at("lambda") * products;
  by_products.diagonal() = 2 * (products.diagonal().array() - 1);
  const auto back = [&](const Centered& x, const Matrix& scale, Matrix by_normalized) {
    rounding.apply(by_normalized);
    if (!normalizes) return by_normalized;
    const Matrix by_scale = by_normalized.cwiseProduct(x.rows).colwise().sum();
    return x.back(by_normalized * scale.row(0).asDiagonal(), -0.5 * scale.array().cube() * by_scale.array());
  };
  return {{"correlation",
           false,
           {back(first, scales[0], sample.weights.asDiagonal() * b * by_products.transpose()),
            back(second, scales[1], sample.weights.asDiagonal() * a * by_products)}}};
}

std::vector<Term> pearson(const Sample& sample, const Options&, const Rounding& rounding) {
  const Centered x(sample.towers[0], sample.weights, rounding), y(sample.towers[1], sample.weights, rounding);
  Matrix covariance = sample.weights.transpose() * x.rows.cwiseProduct(y.rows);
  rounding.apply(covariance);
  const Matrix by_covariance =
      -(x.variance.cwiseProduct(y.variance)).array().rsqrt() / static_cast<double>(x.rows.cols());
  const auto back = [&](const Centered& to, const Centered& other) {
    return to.back(sample.weights.asDiagonal() * other.rows * by_covariance.row(0).asDiagonal(),
                   -0.5 * by_covariance.array() * covariance.array() / to.variance.array());
  };
  return {{"correlation", false, {back(x, y), back(y, x)}}};
}

std::vector<Term> rmse(const Sample& sample, const Options&, const Rounding& rounding) {
  Matrix errors = sample.towers[0] - sample.towers[1];
  rounding.apply(errors);
  const double columns = static_cast<double>(errors.cols());
  const double root = rounding(std::sqrt(sample.weights.dot(errors.rowwise().squaredNorm()) / columns));
  const Matrix by_errors = root == 0 ? errors : Matrix(sample.weights.asDiagonal() * errors / (root * columns));
  return {{"root mean square", false, {by_errors, -by_errors}}};
}

// The corners of the cube {-scale, scale}^bits, one in each row.
Matrix corners_of_cube(Eigen::Index bits, double scale) {
  Matrix corners(Eigen::Index{1} << bits, bits);
  for (Eigen::Index k = 0; k < corners.rows(); ++k)
    for (Eigen::Index j = 0; j < bits; ++j) corners(k, j) = k >> j & 1 ? scale : -scale;
  return corners;
}

Matrix log_softmax(Matrix logits) {
  for (auto row : logits.rowwise()) {
    row.array() -= row.maxCoeff();
    row.array() -= std::log(row.array().exp().sum());
  }
  return logits;
}

// The gradient of H(p) = -sum p log max(p, clamp) with respect to p.
Matrix by_entropy(const Matrix& log_p, double clamp) {
  return log_p.unaryExpr([least = std::log(clamp)](double x) {
    return x < least ? -least : std::isinf(x) ? 0 : -x - 1;
  });
}

// The gradient with respect to logits, of that with respect to p = softmax(logits).
Matrix through_softmax(const Matrix& p, const Matrix& by_p, const Rounding& rounding) {
  Matrix products = p.cwiseProduct(by_p);
  rounding.apply(products);
  return products - products.rowwise().sum().asDiagonal() * p;
}

std::vector<Term> lfq(const Sample& sample, const Options& options, const Rounding& rounding) {
  constexpr double max_assignments = 1 << 22;
  const Matrix& x = sample.towers[0];
  require(std::ldexp(static_cast<double>(x.rows()), static_cast<int>(x.cols())) <= max_assignments, "lfq: ", x.rows(),
          " samples of ", x.cols(), " bits have more than 2^22 assignments; dump fewer samples, or fewer bits");
  const double scale = options.at("scale"), weight = options.at("entropy_weight");
  const double slope = 2 * options.at("inverse_temperature");
  const Matrix corners = corners_of_cube(x.cols(), scale);
  Matrix logits = slope * x * corners.transpose();
  rounding.apply(logits);
  const Matrix log_p = log_softmax(std::move(logits));
  Matrix p = log_p.array().exp(), mean_p = sample.weights.transpose() * p;
  rounding.apply(p);
  rounding.apply(mean_p);

  const auto by_features = [&](const Matrix& by_p) -> Matrix {
    return slope * through_softmax(p, sample.weights.asDiagonal() * by_p, rounding) * corners;
  };
  const double clamp = options.at("clamp");
  const Matrix by_mean = by_entropy(mean_p.array().log(), clamp);
  const Matrix nearest = (x.array() > 0).select(scale, Matrix::Constant(x.rows(), x.cols(), -scale));
  const double commitment = 2 * options.at("commitment_weight") / static_cast<double>(x.cols());
  return {{"sample entropy", true, {by_features(weight * by_entropy(log_p, clamp))}},
          {"batch entropy", false, {by_features(-options.at("diversity") * weight * by_mean.replicate(x.rows(), 1))}},
          {"commitment", true, {commitment * sample.weights.asDiagonal() * (x - nearest)}}};
}

}  // namespace

const std::vector<Loss>& losses_of_statistics() {
  static const std::vector<Loss> all = {
      {.name = "barlow_twins",
       .towers = {"first", "second"},
       .options = {{"lambda", 5e-3}, {"epsilon", 1e-5}, {"normalize", 1}},
       .formula = "sum_i (C_ii - 1)^2 + lambda sum_(i != j) C_ij^2, C the correlations over all samples; without "
                  "normalize 1/B first' second",
       .terms = barlow_twins,
       .min_rows = 2},
      {.name = "vicreg",
       .towers = {"first", "second"},
       .options = {{"lambda", 25}, {"mu", 25}, {"nu", 1}, {"gamma", 1}, {"epsilon", 1e-4}},
       .formula = "lambda mean (a - b)^2 + mu/2 (V_a + V_b) + nu (C_a + C_b), V = mean_j max(0, gamma - sqrt(var_j + "
                  "epsilon)), C = 1/D sum_(i != j) cov_ij^2",
       .terms = vicreg,
       .min_rows = 2},
      {.name = "lfq",
       .towers = {"features"},
       .options = {{"scale", 1},
                   {"inverse_temperature", 100},
                   {"entropy_weight", 0.1},
                   {"diversity", 1},
                   {"commitment_weight", 0.25},
                   {"clamp", 0}},
       .formula = "entropy_weight (mean H(p_i) - diversity H(mean p_i)) + commitment_weight mean |x - q(x)|^2 / D, "
                  "p_i the soft assignment of sample i to the corners of a cube, H(p) = -sum p log max(p, clamp)",
       .terms = lfq},
      {.name = "rmse",
       .towers = {"predictions", "targets"},
       .formula = "sqrt(mean (predictions - targets)^2), over all samples and columns",
       .terms = rmse,
       .targets = {"targets"}},
      {.name = "pearson",
       .towers = {"predictions", "targets"},
       .formula = "1 - mean_j r_j, r_j the correlation of predictions and targets in column j",
       .terms = pearson,
       .targets = {"targets"},
       .min_rows = 2},
  };
  return all;
}

}  // namespace weft::verify
