// SPDX-License-Identifier: Apache-2.0
// What each mistake in a gather or in its adjoint makes of the gradients at the features of a loss.
#include <algorithm>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

double factor_of(Reducer reducer, int ranks) { return reducer == Reducer::mean ? ranks : 1; }

// Labels of ranks that count otherwise.
Eigen::Index kept_in(const Batch& batch, Eigen::Index row) { return row % batch.all_rows(); }
std::vector<Eigen::Index> labels_from(const Batch& batch, int rank, Eigen::Index first) {
  std::vector<Eigen::Index> labels;
  for (Eigen::Index i = 0; i < batch.rows(rank); ++i) labels.push_back(kept_in(batch, first + i));
  return labels;
}
std::vector<Eigen::Index> without_offset(const Batch& batch, int rank) { return labels_from(batch, rank, 0); }
std::vector<Eigen::Index> of_next_rank(const Batch& batch, int rank) {
  return labels_from(batch, rank, batch.first_row((rank + 1) % batch.ranks()));
}
std::vector<Eigen::Index> as_if_even(const Batch& batch, int rank) {
  return labels_from(batch, rank, rank * batch.rows(rank));
}
std::vector<Eigen::Index> as_if_reversed(const Batch& batch, int rank) {
  return labels_from(batch, rank, batch.all_rows() - batch.first_row(rank) - batch.rows(rank));
}
struct OtherLabels {
  Labels labels;
  const char* variant;
};
const OtherLabels other_labels[] = {{without_offset, ""},
                                    {of_next_rank, "labels of the next rank"},
                                    {as_if_even, "offsets of equal shards"},
                                    {as_if_reversed, "offsets in reverse order of ranks"}};

std::vector<Eigen::Index> no_pairs(const Batch& batch, int rank) {
  return std::vector<Eigen::Index>(static_cast<size_t>(batch.rows(rank)), -1);
}

// How much of each part of the gradient reaches a feature.
struct Shares {
  double direct = 1, own_slot = 1, other_slots = 1, others_own_slots = 0, scalars = 1;
  int lost_hop = 0;  // the rank so many after another one gets nothing from it
};

struct SeamModel {
  const SeamEvidence& seam;
  double factor;
  RankParts parts;

  size_t towers() const { return seam.loss->towers.size(); }
  int ranks() const { return seam.batch.ranks(); }

  // `shares` by tower; rank q's rows weigh `weights[q]` times what they should.
  Prediction predict(const std::function<Shares(size_t tower)>& shares, const std::vector<double>& weights = {}) const {
    Prediction result;
    const auto weight = [&](int q) { return weights.empty() ? 1 : weights[static_cast<size_t>(q)]; };
    for (size_t tower = 0; tower < towers(); ++tower) {
      const Shares share = shares(tower);
      for (int r = 0; r < ranks(); ++r) {
        const auto& part = parts[static_cast<size_t>(r)];
        Matrix g =
            share.direct * weight(r) * part.own[tower] + share.own_slot * weight(r) * part.slot(seam.batch, tower, r);
        for (int q = 0; q < ranks(); ++q) {
          if (q == r) continue;
          const auto& other = parts[static_cast<size_t>(q)];
          const bool lost = share.lost_hop > 0 && (q + share.lost_hop) % ranks() == r;
          if (share.other_slots != 0 && !lost) g += share.other_slots * weight(q) * other.slot(seam.batch, tower, r);
          if (share.others_own_slots != 0) {
            if (seam.batch.rows(q) != seam.batch.rows(r)) return {{}, false};
            g += share.others_own_slots * weight(q) * other.slot(seam.batch, tower, q);
          }
        }
        result.tensors.push_back(factor * g);
      }
    }
    for (const auto& name : seam.loss->scalars) {
      if (!seam.scalars.contains(name)) continue;
      double sum = 0;
      for (int q = 0; q < ranks(); ++q) sum += weight(q) * parts[static_cast<size_t>(q)].scalars.at(name);
      result.tensors.push_back(Matrix::Constant(1, 1, shares(0).scalars * sum));
    }
    return result;
  }
  // Of a loss that every rank computes whole, where each adds up the gradients of all ranks' own rows.
  Prediction all_reduced_slices() const {
    Prediction result = predict(Shares());
    for (size_t tower = 0; tower < towers(); ++tower) {
      const auto of_rank = [&](int r) -> Matrix& {
        return result.tensors[tower * static_cast<size_t>(ranks()) + static_cast<size_t>(r)];
      };
      for (int r = 1; r < ranks(); ++r)
        if (of_rank(r).rows() != of_rank(0).rows()) return {{}, false};
      Matrix sum = of_rank(0) / ranks();
      for (int r = 1; r < ranks(); ++r) sum += of_rank(r) / ranks();
      for (int r = 0; r < ranks(); ++r) of_rank(r) = sum;
    }
    return result;
  }
  // Of a reducer that averages the means that ranks take of their own samples.
  Prediction of_own_batches(const Rounding& rounding) const {
    std::vector<Part> alone;
    for (int r = 0; r < ranks(); ++r) {
      Batch own = seam.batch;
      for (auto& tower : own.features) tower = {tower[static_cast<size_t>(r)]};
      if (own.all_rows() < seam.loss->min_rows) return {{}, false};
      alone.push_back(seam.loss->parts(own, rounding, {right_labels})[0][0]);
    }
    Prediction result;
    for (size_t tower = 0; tower < towers(); ++tower)
      for (const Part& part : alone) result.tensors.push_back(factor / ranks() * (part.own[tower] + part.keys[tower]));
    for (const auto& name : seam.loss->scalars) {
      if (!seam.scalars.contains(name)) continue;
      double sum = 0;
      for (const Part& part : alone) sum += part.scalars.at(name) / ranks();
      result.tensors.push_back(Matrix::Constant(1, 1, sum));
    }
    return result;
  }
  // Of a loss whose queries are those of one tower only, each of which counts so much.
  Prediction of_queries(size_t queries, double weight) const {
    Prediction result = predict([=](size_t tower) {
      return tower == queries ? Shares{.direct = weight, .own_slot = 0, .other_slots = 0}
                              : Shares{.direct = 0, .own_slot = weight, .other_slots = weight};
    });
    size_t next = towers() * static_cast<size_t>(ranks());
    for (const auto& name : seam.loss->scalars) {
      if (!seam.scalars.contains(name)) continue;
      double sum = 0;
      for (const Part& part : parts) sum += weight * part.scalars_of_queries[queries].at(name);
      result.tensors[next++].setConstant(sum);
    }
    return result;
  }
  // Of a sum over pairs that lacks those of each rank's queries with the keys of the rank so many after it.
  Prediction without_pairs(int hop, const Rounding& rounding) const {
    Prediction result = predict(Shares());
    const auto count = static_cast<size_t>(ranks());
    for (size_t q = 0; q < count; ++q) {
      const size_t other = (q + static_cast<size_t>(hop)) % count;
      Batch pairs = seam.batch;
      pairs.features = {{seam.batch.features[0][q]}, {seam.batch.features[1][other]}};
      if (pairs.all_rows() == 0) continue;
      const Part part = seam.loss->parts(pairs, rounding, {no_pairs})[0][0];
      const double share = static_cast<double>(pairs.all_rows()) / static_cast<double>(seam.batch.all_rows());
      result.tensors[q] -= factor * share * part.own[0];
      result.tensors[count + other] -= factor * share * part.keys[1];
      size_t next = 2 * count;
      for (const auto& name : seam.loss->scalars)
        if (seam.scalars.contains(name)) result.tensors[next++](0) -= share * part.scalars.at(name);
    }
    return result;
  }
  // What goes back to rank r is what belongs to another one.
  Prediction slots_of(const std::function<int(int)>& whose) const {
    Prediction result = predict(Shares());
    for (size_t tower = 0; tower < towers(); ++tower)
      for (int r = 0; r < ranks(); ++r) {
        if (seam.batch.rows(whose(r)) != seam.batch.rows(r)) return {{}, false};
        Matrix g = parts[static_cast<size_t>(r)].own[tower];
        for (const Part& part : parts) g += part.slot(seam.batch, tower, whose(r));
        result.tensors[tower * static_cast<size_t>(ranks()) + static_cast<size_t>(r)] = factor * g;
      }
    return result;
  }
  bool has_keys(size_t tower) const {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return !part.keys[tower].isZero(0); });
  }
  Prediction predict(const Shares& shares) const {
    return predict([&](size_t) { return shares; });
  }
};

void add(std::vector<Hypothesis>& all, const char* id, std::string variant, Prediction prediction) {
  if (prediction.applies) all.push_back({&signature(id), std::move(variant), std::move(prediction)});
}

// In what a rank does with the gradient of the gathered features.
void add_adjoints(std::vector<Hypothesis>& all, const SeamModel& model) {
  const char *own_rows = "each rank computes its own rows", *whole_loss = "every rank computes the whole loss";
  const double w = model.ranks();
  add(all, "S1", own_rows, model.predict({.own_slot = 0, .other_slots = 0}));
  add(all, "S1", whole_loss, model.predict({.direct = 0, .own_slot = 0, .other_slots = 0}));
  add(all, "S2", "", model.predict({.other_slots = 0}));
  add(all, "S3", "", model.predict({1 / w, 1 / w, 1 / w}));
  add(all, "S4", "", model.predict({.own_slot = w, .other_slots = 0}));
  add(all, "S5", own_rows, model.predict({.other_slots = 0, .others_own_slots = 1}));
  add(all, "S5", whole_loss, model.all_reduced_slices());
  add(all, "S6", "", model.predict({1, 1 / w, 1 / w}));
  add(all, "S7", own_rows, model.predict({1, w, w}));
  add(all, "S7", whole_loss, model.predict({w, w, w}));
  add(all, "S8", "", model.predict({w, w, w, 0, w}));
  add(all, "S9", "", model.predict({1 / w, 1 / w, 1 / w, 0, 1 / w}));
  add(all, "S1", "of the own slot only", model.predict({.own_slot = 0}));
  add(all, "S36", "reversed", model.slots_of([&](int r) { return model.ranks() - 1 - r; }));
  add(all, "S36", "of the next rank", model.slots_of([&](int r) { return (r + 1) % model.ranks(); }));
  const bool both_have_keys = model.towers() == 2 && model.has_keys(0) && model.has_keys(1);
  for (size_t tower = 0; tower < model.towers(); ++tower) {
    if (!model.has_keys(tower)) continue;
    const std::string& name = model.seam.loss->towers[tower];
    const auto of_tower = [&](const Shares& shares) {
      return model.predict([&](size_t t) { return t == tower ? shares : Shares(); });
    };
    add(all, "S20", name + " stay without it", of_tower({.other_slots = 0}));
    add(all, "S3", "of " + name + " only", of_tower({1 / w, 1 / w, 1 / w}));
    if (!both_have_keys) continue;
    add(all, "S1", "of " + name + " only", of_tower({.own_slot = 0, .other_slots = 0}));
    add(all, "S6", "of " + name + " only", of_tower({1, 1 / w, 1 / w}));
  }
  for (int hop = 1; hop < model.ranks() && model.ranks() > 2; ++hop)
    add(all, "S20", "hop " + std::to_string(hop) + " of a ring is lost", model.predict(Shares{.lost_hop = hop}));
}

// In what of the loss is computed at all.
void add_lost_parts(std::vector<Hypothesis>& all, const SeamModel& model, const Rounding& rounding) {
  if (!model.parts[0].scalars_of_queries.empty())
    for (size_t tower = 0; tower < 2; ++tower) {
      const std::string of = model.seam.loss->towers[1 - tower];
      add(all, "S39", of + " pick nothing", model.of_queries(tower, 1));
      add(all, "S39", of + " pick nothing, the others count twice", model.of_queries(tower, 2));
    }
  if (!model.seam.loss->of_pairs) return;
  for (int hop = 1; hop < model.ranks() && model.ranks() > 2; ++hop)
    add(all, "S35", "in hop " + std::to_string(hop) + " of a ring", model.without_pairs(hop, rounding));
}

// In what the rows of a rank weigh, where ranks have different numbers of them.
void add_weights(std::vector<Hypothesis>& all, const SeamModel& model) {
  const Batch& batch = model.seam.batch;
  Eigen::Index longest = 0;
  for (int r = 0; r < model.ranks(); ++r) longest = std::max(longest, batch.rows(r));
  if (longest * model.ranks() == batch.all_rows()) return;
  const auto weight = [&](Eigen::Index rows) {
    return rows == 0 ? 0 : static_cast<double>(batch.all_rows()) / (model.ranks() * static_cast<double>(rows));
  };
  std::vector<double> of_means, padded;
  for (int r = 0; r < model.ranks(); ++r) {
    of_means.push_back(weight(batch.rows(r)));
    padded.push_back(weight(longest));
  }
  const auto correct = [](size_t) { return Shares(); };
  add(all, "S12", "", model.predict(correct, of_means));
  add(all, "S13", "", model.predict(correct, padded));
}

}  // namespace

// Scalars are compared after the reducer: ranks may share a loss or each have all of it.
Observed observed(const SeamEvidence& seam, Reducer reducer) {
  Observed result;
  for (size_t tower = 0; tower < seam.loss->towers.size(); ++tower)
    for (int r = 0; seam.has_gradient(tower) && r < seam.batch.ranks(); ++r)
      result.add(seam.loss->towers[tower] + " of rank " + std::to_string(r),
                 seam.gradients[tower][static_cast<size_t>(r)]);
  for (const auto& name : seam.loss->scalars) {
    const auto found = seam.scalars.find(name);
    if (found == seam.scalars.end()) continue;
    double sum = 0;
    for (const double g : found->second) sum += g;
    result.add(name, Matrix::Constant(1, 1, reducer == Reducer::mean ? sum / seam.batch.ranks() : sum));
  }
  return result;
}

std::vector<Hypothesis> hypotheses(const SeamEvidence& given, const Dump& dump, const Rounding& rounding) {
  SeamEvidence seam = given;
  for (auto& tower : seam.batch.features)
    for (Matrix& m : tower) rounding.apply(m);
  for (auto& [name, value] : seam.batch.scalars) value = rounding(value);
  const double factor = factor_of(dump.reducer, seam.batch.ranks());
  if (seam.loss->terms) return statistics_hypotheses(seam, factor, rounding);
  std::vector<Labels> ways = {right_labels};
  for (const auto& [labels, variant] : other_labels) ways.push_back(labels);
  std::vector<RankParts> parts = seam.loss->parts(seam.batch, rounding, ways);
  const auto model = [&](size_t way) { return SeamModel{seam, factor, std::move(parts[way])}; };
  const SeamModel correct = model(0);
  std::vector<Hypothesis> all;
  add(all, "S0", "", correct.predict(Shares()));
  add_adjoints(all, correct);
  add_weights(all, correct);
  add_lost_parts(all, correct, rounding);
  if (dump.micro_batches > 1 && !seam.scalars.empty())
    add(all, "S19", "", correct.predict({.scalars = static_cast<double>(dump.micro_batches)}));
  for (size_t way = 1; way < ways.size(); ++way)
    add(all, "S25", other_labels[way - 1].variant, model(way).predict(Shares()));
  add(all, "S35", "", correct.of_own_batches(rounding));
  return all;
}

}  // namespace weft::verify
