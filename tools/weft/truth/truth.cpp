// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tools/weft/truth/products.h"

namespace weft::verify {

Eigen::Index Batch::first_row(int rank) const {
  Eigen::Index first = 0;
  for (int r = 0; r < rank; ++r) first += rows(r);
  return first;
}

std::vector<Eigen::Index> right_labels(const Batch& batch, int rank) {
  std::vector<Eigen::Index> labels(static_cast<size_t>(batch.rows(rank)));
  std::iota(labels.begin(), labels.end(), batch.first_row(rank));
  return labels;
}

Matrix Part::slot(const Batch& batch, size_t tower, int rank) const {
  return keys[tower].middleRows(batch.first_row(rank), batch.rows(rank));
}

double Rounding::operator()(double x) const {
  if (epsilon == 0) return x;
  return x * (1 + epsilon * std::uniform_real_distribution<double>(-1, 1)(generator));
}

void Rounding::apply(Matrix& x) const {
  if (epsilon == 0) return;
  for (Eigen::Index i = 0; i < x.size(); ++i) x.data()[i] = (*this)(x.data()[i]);
}

double Rounding::sum(Matrix terms) const {
  apply(terms);
  return terms.sum();
}

namespace {

// u = x / |x|, row by row, and the gradient with respect to x of what is g with respect to u.
Matrix normalized(const Matrix& x) { return x.rowwise().normalized(); }
Matrix through_normalization(const Matrix& x, const Matrix& g) {
  Matrix result(x.rows(), x.cols());
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    const double length = x.row(i).norm();
    const auto u = x.row(i) / length;
    result.row(i) = (g.row(i) - u.dot(g.row(i)) * u) / length;
  }
  return result;
}

// The loss of queries that each pick one of all keys: -log softmax(scale q k')[positive], a sum over queries.
struct Picking {
  const Matrix& keys;
  double scale;
  const Rounding& rounding;
  bool positive_competes = true;  // DCL leaves the positive out of the denominator

  double value = 0, by_scale = 0;
  Matrix by_keys = Matrix::Zero(keys.rows(), keys.cols());

  // Returns the gradient with respect to the queries. `self` is the key that a query may not pick, or -1.
  Matrix add(const Matrix& queries, const std::vector<Eigen::Index>& positives, const std::vector<Eigen::Index>& selves,
             double weight) {
    if (queries.rows() == 0) return queries;
    Matrix scaled = scale * queries;
    rounding.apply(scaled);
    Matrix scores = product(scaled, keys, Transposed::right);
    rounding.apply(scores);
    Matrix by_scores(scores.rows(), scores.cols());
    for (Eigen::Index i = 0; i < scores.rows(); ++i) {
      const Eigen::Index positive = positives[static_cast<size_t>(i)], self = selves[static_cast<size_t>(i)];
      const auto competes = [&](Eigen::Index j) { return j != self && (positive_competes || j != positive); };
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (Eigen::Index j = 0; j < scores.cols(); ++j)
        if (competes(j)) largest = std::max(largest, scores(i, j));
      if (!std::isfinite(largest)) {  // a single sample has no negatives
        by_scores.row(i).setZero();
        continue;
      }
      for (Eigen::Index j = 0; j < scores.cols(); ++j) {
        by_scores(i, j) = competes(j) ? std::exp(scores(i, j) - largest) : 0;
        sum += by_scores(i, j);
      }
      for (Eigen::Index j = 0; j < scores.cols(); ++j) by_scores(i, j) = weight * rounding(by_scores(i, j) / sum);
      by_scores(i, positive) -= weight;
      value += weight * (largest + std::log(sum) - scores(i, positive));
    }
    by_scale += rounding.sum(by_scores.cwiseProduct(scores)) / scale;
    by_keys += scale * product(by_scores, queries, Transposed::left);
    Matrix by_queries = scale * product(by_scores, keys);
    rounding.apply(by_queries);
    return by_queries;
  }
};

double option(const Batch& batch, const std::string& name) { return batch.options.at(name); }

std::vector<Eigen::Index> none(Eigen::Index count) { return std::vector<Eigen::Index>(static_cast<size_t>(count), -1); }

// The features as the loss compares them, and gradients back to the features as they were given.
struct Compared {
  const Batch& batch;
  bool normalizes;
  std::vector<std::vector<Matrix>> by_rank;
  std::vector<Matrix> all;

  explicit Compared(const Batch& batch) : batch(batch), normalizes(option(batch, "normalize") != 0) {
    for (const auto& tower : batch.features) {
      by_rank.push_back(tower);
      if (normalizes)
        for (Matrix& m : by_rank.back()) m = normalized(m);
      all.push_back(stacked(by_rank.back()));
    }
  }
  void back(Part& part, int rank) const {
    if (!normalizes) return;
    for (size_t tower = 0; tower < all.size(); ++tower) {
      part.own[tower] = through_normalization(batch.features[tower][static_cast<size_t>(rank)], part.own[tower]);
      part.keys[tower] = through_normalization(stacked(batch.features[tower]), part.keys[tower]);
    }
  }
};

// NT-Xent and DCL: each row of two views picks its counterpart among all other rows of both views.
std::vector<Part> of_two_views(const Batch& batch, const Rounding& rounding, Labels labels, bool positive_competes) {
  const Compared compared(batch);
  const Eigen::Index all = batch.all_rows();
  Matrix keys(2 * all, compared.all[0].cols());
  keys << compared.all[0], compared.all[1];
  std::vector<Part> parts;
  for (int r = 0; r < batch.ranks(); ++r) {
    const std::vector<Eigen::Index> here = labels(batch, r);
    std::vector<Eigen::Index> there = here;
    for (Eigen::Index& each : there) each += all;
    Picking pick{keys, 1 / option(batch, "temperature"), rounding, positive_competes};
    const double weight = 0.5 / static_cast<double>(all);
    Part part;
    part.own = {pick.add(compared.by_rank[0][static_cast<size_t>(r)], there, here, weight),
                pick.add(compared.by_rank[1][static_cast<size_t>(r)], here, there, weight)};
    part.keys = {pick.by_keys.topRows(all), pick.by_keys.bottomRows(all)};
    part.value = pick.value;
    compared.back(part, r);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Part> nt_xent(const Batch& batch, const Rounding& rounding, Labels labels) {
  return of_two_views(batch, rounding, labels, true);
}
std::vector<Part> dcl(const Batch& batch, const Rounding& rounding, Labels labels) {
  return of_two_views(batch, rounding, labels, false);
}

std::vector<Part> info_nce(const Batch& batch, const Rounding& rounding, Labels labels) {
  const Compared compared(batch);
  std::vector<Part> parts;
  for (int r = 0; r < batch.ranks(); ++r) {
    const Eigen::Index rows = batch.rows(r);
    Picking pick{compared.all[1], 1 / option(batch, "temperature"), rounding};
    Part part;
    part.own = {pick.add(compared.by_rank[0][static_cast<size_t>(r)], labels(batch, r), none(rows),
                         1 / static_cast<double>(batch.all_rows())),
                Matrix::Zero(rows, compared.all[1].cols())};
    part.keys = {Matrix::Zero(compared.all[0].rows(), compared.all[0].cols()), pick.by_keys};
    part.value = pick.value;
    compared.back(part, r);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Part> clip(const Batch& batch, const Rounding& rounding, Labels labels) {
  const Compared compared(batch);
  const double scale = batch.scalars.at("scale"), weight = 0.5 / static_cast<double>(batch.all_rows());
  std::vector<Part> parts;
  for (int r = 0; r < batch.ranks(); ++r) {
    const Eigen::Index rows = batch.rows(r);
    const std::vector<Eigen::Index> own = labels(batch, r);
    Picking texts{compared.all[1], scale, rounding}, images{compared.all[0], scale, rounding};
    Part part;
    part.own = {texts.add(compared.by_rank[0][static_cast<size_t>(r)], own, none(rows), weight),
                images.add(compared.by_rank[1][static_cast<size_t>(r)], own, none(rows), weight)};
    part.keys = {images.by_keys, texts.by_keys};
    part.value = images.value + texts.value;
    part.scalars["scale"] = images.by_scale + texts.by_scale;
    part.scalars_of_queries = {{{"scale", texts.by_scale}}, {{"scale", images.by_scale}}};
    compared.back(part, r);
    parts.push_back(std::move(part));
  }
  return parts;
}

// 1/B sum_ij log(1 + exp(-t_ij (s x_i.y_j + c))), t = 1 for a pair and -1 else.
std::vector<Part> siglip(const Batch& batch, const Rounding& rounding, Labels labels) {
  const Compared compared(batch);
  const double scale = batch.scalars.at("scale"), bias = batch.scalars.at("bias");
  const double weight = 1 / static_cast<double>(batch.all_rows());
  std::vector<Part> parts;
  for (int r = 0; r < batch.ranks(); ++r) {
    const Matrix& own = compared.by_rank[0][static_cast<size_t>(r)];
    const std::vector<Eigen::Index> pairs = labels(batch, r);
    Matrix products = product(own, compared.all[1], Transposed::right);
    rounding.apply(products);
    Matrix by_logits(products.rows(), products.cols());
    Part part;
    for (Eigen::Index i = 0; i < products.rows(); ++i)
      for (Eigen::Index j = 0; j < products.cols(); ++j) {
        const double sign = j == pairs[static_cast<size_t>(i)] ? 1 : -1, z = -sign * (scale * products(i, j) + bias);
        part.value += weight * (std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))));
        by_logits(i, j) = -sign * weight * rounding(1 / (1 + std::exp(-z)));
      }
    part.own = {scale * product(by_logits, compared.all[1]), Matrix::Zero(own.rows(), own.cols())};
    part.keys = {Matrix::Zero(compared.all[0].rows(), own.cols()), scale * product(by_logits, own, Transposed::left)};
    part.scalars["scale"] = rounding.sum(by_logits.cwiseProduct(products));
    part.scalars["bias"] = rounding.sum(by_logits);
    compared.back(part, r);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Loss> contrastive_losses() {
  return {
      {"nt_xent",
       {"first", "second"},
       {},
       {{"temperature", 0.5}, {"normalize", 1}},
       "1/2B sum_i (log sum_(j != i) exp(z_i.z_j / temperature) - z_i.z_i' / temperature), over both views",
       nt_xent},
      {"dcl",
       {"first", "second"},
       {},
       {{"temperature", 0.1}, {"normalize", 1}},
       "1/2B sum_i (log sum_(j != i, i') exp(z_i.z_j / temperature) - z_i.z_i' / temperature), over both views",
       dcl},
      {"info_nce",
       {"queries", "keys"},
       {},
       {{"temperature", 0.1}, {"normalize", 1}},
       "1/B sum_i (log sum_j exp(q_i.k_j / temperature) - q_i.k_i / temperature)",
       info_nce},
      {"clip",
       {"images", "texts"},
       {"scale"},
       {{"normalize", 0}},
       "1/2B sum_i (log sum_j exp(s x_i.y_j) + log sum_j exp(s x_j.y_i) - 2 s x_i.y_i)",
       clip},
      {"siglip",
       {"images", "texts"},
       {"scale", "bias"},
       {{"normalize", 0}},
       "1/B sum_ij log(1 + exp(-(s x_i.y_j + c) if i = j, else +))",
       siglip,
       nullptr,
       {},
       1,
       true},
  };
}

}  // namespace

const std::vector<Loss>& losses() {
  static const std::vector<Loss> all = [] {
    std::vector<Loss> every = contrastive_losses();
    every.insert(every.end(), losses_of_statistics().begin(), losses_of_statistics().end());
    return every;
  }();
  return all;
}

const Loss* find_loss(const std::string& name) {
  for (const Loss& loss : losses())
    if (loss.name == name) return &loss;
  return nullptr;
}

}  // namespace weft::verify
