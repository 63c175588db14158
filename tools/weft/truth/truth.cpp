// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/truth.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tools/weft/truth/picking.h"

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

Eigen::Ref<const Matrix> Part::slot(const Batch& batch, size_t tower, int rank) const {
  return keys[tower].middleRows(batch.first_row(rank), batch.rows(rank));
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

double option(const Batch& batch, const std::string& name) { return batch.options.at(name); }

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
  Part back(Part part, int rank) const {
    for (size_t tower = 0; tower < all.size() && normalizes; ++tower) {
      part.own[tower] = through_normalization(batch.features[tower][static_cast<size_t>(rank)], part.own[tower]);
      part.keys[tower] = through_normalization(stacked(batch.features[tower]), part.keys[tower]);
    }
    return part;
  }
};

// Of the queries of a rank that pick rows of the whole batch, in each of these ways to count labels.
std::vector<Choice> choices(const Batch& batch, int rank, const std::vector<Labels>& ways) {
  std::vector<Choice> all;
  for (const Labels labels : ways)
    all.push_back({labels(batch, rank), std::vector<Eigen::Index>(static_cast<size_t>(batch.rows(rank)), -1)});
  return all;
}

// NT-Xent and DCL: each row of two views picks its counterpart among all other rows of both views.
std::vector<RankParts> of_two_views(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways,
                                    bool positive_competes) {
  const Compared compared(batch);
  const Eigen::Index all = batch.all_rows();
  Matrix keys(2 * all, compared.all[0].cols());
  keys << compared.all[0], compared.all[1];
  const Scale scale{1 / option(batch, "temperature")};
  const double weight = 0.5 / static_cast<double>(all);
  std::vector<RankParts> result(ways.size());
  for (int r = 0; r < batch.ranks(); ++r) {
    std::vector<Choice> of_first, of_second;
    for (const Labels labels : ways) {
      const std::vector<Eigen::Index> here = labels(batch, r);
      std::vector<Eigen::Index> there = here;
      for (Eigen::Index& each : there) each += all;
      of_first.push_back({there, here});
      of_second.push_back({here, there});
    }
    const auto view = [&](size_t tower, const std::vector<Choice>& choices) {
      return by_softmax({compared.by_rank[tower][static_cast<size_t>(r)], keys, weight, scale, rounding}, choices,
                        positive_competes);
    };
    std::vector<Picked> first = view(0, of_first), second = view(1, of_second);
    for (size_t way = 0; way < ways.size(); ++way) {
      Picked &a = first[way], &b = second[way];
      a.by_keys += b.by_keys;
      result[way].push_back(compared.back({.value = a.value + b.value,
                                           .own = {std::move(a.by_queries), std::move(b.by_queries)},
                                           .keys = {a.by_keys.topRows(all), a.by_keys.bottomRows(all)}},
                                          r));
    }
  }
  return result;
}

std::vector<RankParts> nt_xent(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways) {
  return of_two_views(batch, rounding, ways, true);
}
std::vector<RankParts> dcl(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways) {
  return of_two_views(batch, rounding, ways, false);
}

// Of losses whose queries are of the first tower, and whose keys are of the second one.
using ByPicked = std::function<std::vector<Picked>(const Queries&, const std::vector<Choice>&)>;
std::vector<RankParts> of_queries_and_keys(const Batch& batch, const Rounding& rounding,
                                           const std::vector<Labels>& ways, const Scale& scale, const ByPicked& pick) {
  const Compared compared(batch);
  const double weight = 1 / static_cast<double>(batch.all_rows());
  std::vector<RankParts> result(ways.size());
  for (int r = 0; r < batch.ranks(); ++r) {
    const Matrix& own = compared.by_rank[0][static_cast<size_t>(r)];
    std::vector<Picked> all = pick({own, compared.all[1], weight, scale, rounding}, choices(batch, r, ways));
    for (size_t way = 0; way < ways.size(); ++way) {
      Picked& keys = all[way];
      result[way].push_back(
          compared.back({.value = keys.value,
                         .own = {std::move(keys.by_queries), Matrix::Zero(own.rows(), own.cols())},
                         .keys = {Matrix::Zero(batch.all_rows(), own.cols()), std::move(keys.by_keys)},
                         .scalars = {{"scale", keys.by_scale}, {"bias", keys.by_bias}}},
                        r));
    }
  }
  return result;
}

std::vector<RankParts> info_nce(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways) {
  return of_queries_and_keys(batch, rounding, ways, {1 / option(batch, "temperature")},
                             [](const Queries& of, const std::vector<Choice>& all) { return by_softmax(of, all); });
}

// 1/B sum_ij log(1 + exp(-t_ij (s x_i.y_j + c))), t = 1 for a pair and -1 else.
std::vector<RankParts> siglip(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways) {
  return of_queries_and_keys(batch, rounding, ways, {batch.scalars.at("scale"), batch.scalars.at("bias"), true},
                             by_sigmoids);
}

std::vector<RankParts> clip(const Batch& batch, const Rounding& rounding, const std::vector<Labels>& ways) {
  const Compared compared(batch);
  const Scale scale{.factor = batch.scalars.at("scale"), .is_learned = true};
  const double weight = 0.5 / static_cast<double>(batch.all_rows());
  std::vector<RankParts> result(ways.size());
  for (int r = 0; r < batch.ranks(); ++r) {
    const auto picked = [&](size_t queries) {
      return by_softmax(
          {compared.by_rank[queries][static_cast<size_t>(r)], compared.all[1 - queries], weight, scale, rounding},
          choices(batch, r, ways));
    };
    std::vector<Picked> texts = picked(0), images = picked(1);
    for (size_t way = 0; way < ways.size(); ++way) {
      Picked &of_texts = texts[way], &of_images = images[way];
      result[way].push_back(
          compared.back({.value = of_images.value + of_texts.value,
                         .own = {std::move(of_texts.by_queries), std::move(of_images.by_queries)},
                         .keys = {std::move(of_images.by_keys), std::move(of_texts.by_keys)},
                         .scalars = {{"scale", of_images.by_scale + of_texts.by_scale}},
                         .scalars_of_queries = {{{"scale", of_texts.by_scale}}, {{"scale", of_images.by_scale}}}},
                        r));
    }
  }
  return result;
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
