// SPDX-License-Identifier: Apache-2.0
// What each mistake in the communication of a statistic makes of the gradients at the features of a loss.
#include <algorithm>
#include <numeric>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

// By rank and term; gradients at the rank's own rows.
using TermsOfRanks = std::vector<std::vector<Term>>;
using Indices = std::vector<size_t>;

struct StatisticsModel {
  const SeamEvidence& seam;
  double factor;
  const Rounding& rounding;
  TermsOfRanks truth = terms_of(whole_batch(seam.batch.features));
  std::vector<Hypothesis> all = {};

  size_t ranks() const { return static_cast<size_t>(seam.batch.ranks()); }
  double count() const { return static_cast<double>(ranks()); }
  double samples() const { return static_cast<double>(seam.batch.all_rows()); }
  double width() const { return static_cast<double>(seam.batch.features[0][0].cols()); }

  std::vector<Term> terms(const Sample& sample) const { return seam.loss->terms(sample, seam.batch.options, rounding); }
  TermsOfRanks terms_of(const Sample& sample) const {
    const std::vector<Term> of_all = terms(sample);
    TermsOfRanks result(ranks(), of_all);
    for (size_t r = 0; r < ranks(); ++r)
      for (Term& term : result[r])
        for (Matrix& gradient : term.gradients) gradient = sample.of_rank(gradient, r);
    return result;
  }
  // Each rank has the statistics of its own rows, which together weigh `weight`.
  TermsOfRanks local_terms(double weight) const {
    TermsOfRanks result;
    for (size_t r = 0; r < ranks(); ++r) result.push_back(terms(own_rows(seam.batch.features, r, weight)));
    return result;
  }
  // Every rank adds up the gradients of all ranks' own rows.
  TermsOfRanks added_slices() const {
    TermsOfRanks result = truth;
    for (auto& of_rank : result)
      for (size_t t = 0; t < of_rank.size(); ++t)
        for (size_t tower = 0; tower < of_rank[t].gradients.size(); ++tower) {
          of_rank[t].gradients[tower].setZero();
          for (const auto& other : truth) of_rank[t].gradients[tower] += other[t].gradients[tower];
        }
    return result;
  }

  Indices all_terms() const {
    Indices indices(truth[0].size());
    std::iota(indices.begin(), indices.end(), size_t{0});
    return indices;
  }
  // Every choice of terms that are functions of a statistic.
  std::vector<Indices> sets_of_statistics() const {
    std::vector<Indices> sets = {{}};
    for (const size_t t : all_terms()) {
      if (truth[0][t].of_rows) continue;
      for (size_t i = 0, before = sets.size(); i < before; ++i) {
        sets.push_back(sets[i]);
        sets.back().push_back(t);
      }
    }
    sets.erase(sets.begin());
    return sets;
  }
  std::string names(const Indices& chosen) const {
    std::string names;
    for (const size_t t : chosen) names += (names.empty() ? "" : ", ") + truth[0][t].name;
    return names;
  }

  // The chosen terms are `scale` times those of `made`, the others are right.
  void add(const char* id, std::string variant, const Indices& chosen, const TermsOfRanks& made, double scale) {
    Prediction prediction;
    for (size_t tower = 0; tower < seam.loss->towers.size(); ++tower) {
      if (!seam.has_gradient(tower)) continue;
      for (size_t r = 0; r < ranks(); ++r) {
        const Matrix& x = seam.batch.features[tower][r];
        Matrix g = Matrix::Zero(x.rows(), x.cols());
        for (const size_t t : all_terms()) {
          const bool is_chosen = std::find(chosen.begin(), chosen.end(), t) != chosen.end();
          g += is_chosen ? scale * made[r][t].gradients[tower] : truth[r][t].gradients[tower];
        }
        prediction.tensors.push_back(factor * g);
      }
    }
    all.push_back({&signature(id), std::move(variant), std::move(prediction)});
  }

  bool even() const {
    return std::all_of(seam.batch.features[0].begin(), seam.batch.features[0].end(),
                       [&](const Matrix& m) { return m.rows() == seam.batch.rows(0); });
  }
  bool every_rank_suffices() const {
    return std::all_of(seam.batch.features[0].begin(), seam.batch.features[0].end(),
                       [&](const Matrix& m) { return m.rows() == 0 || m.rows() >= seam.loss->min_rows; });
  }

  void add_factors() {
    add("S3", "every rank computes the whole loss", all_terms(), truth, 1 / count());
    add("S8", "", all_terms(), truth, count());
    add("S9", "", all_terms(), truth, 1 / count());
    add("S33", "by the number of samples", all_terms(), truth, 1 / samples());
    add("S33", "multiplied by the number of samples", all_terms(), truth, samples());
    if (width() == 1) return;
    add("S33", "by the number of features", all_terms(), truth, 1 / width());
    add("S33", "multiplied by the number of features", all_terms(), truth, width());
  }
  void add_weights() {
    if (every_rank_suffices())
      add("S12", "each rank has statistics of its own", all_terms(), local_terms(1), 1 / count());
    if (even()) return;
    add("S12", "", all_terms(), terms_of(mean_of_means(seam.batch.features)), 1);
    add("S13", "", all_terms(), terms_of(padded(seam.batch.features)), 1);
  }
  void add_mistakes_of_statistics() {
    const TermsOfRanks discarded = every_rank_suffices() ? local_terms(1 / count()) : TermsOfRanks();
    const TermsOfRanks slices = even() ? added_slices() : TermsOfRanks();
    for (const Indices& chosen : sets_of_statistics()) {
      add("S1", names(chosen), chosen, truth, 0);
      if (!slices.empty()) add("S5", names(chosen), chosen, slices, 1 / count());
      add("S7", names(chosen), chosen, truth, count());
      add("S10", names(chosen), chosen, truth, 1 / count());
      if (!discarded.empty()) add("S11", names(chosen), chosen, discarded, 1 / count());
    }
  }
};

}  // namespace

std::vector<Hypothesis> statistics_hypotheses(const SeamEvidence& seam, double factor, const Rounding& rounding) {
  StatisticsModel model{seam, factor, rounding};
  model.add("S0", "", model.all_terms(), model.truth, 1);
  model.add_factors();
  model.add_mistakes_of_statistics();
  model.add_weights();
  return std::move(model.all);
}

}  // namespace weft::verify
