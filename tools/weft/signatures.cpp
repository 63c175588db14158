// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/signatures.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace weft::verify {

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all = {
      {"S0", "correct", "the gradient of one process with the whole batch", ""},
      {"S1", "no gradient through the gather", "features learn as queries only, at about half of the truth's length",
       "gather with an operation that has a gradient, whose adjoint is a reduce-scatter sum"},
      {"S2", "only the own slot of the gathered gradient is used",
       "what other ranks' queries say of these keys is lost", "reduce-scatter (sum) the gradient of all slots"},
      {"S3", "own slot re-inserted", "the encoder's gradient is 1/W of the truth while that of shared scalars is right",
       "reduce-scatter (sum) the gathered gradient instead of re-inserting the own features"},
      {"S4", "own slot multiplied by W", "right for replicated losses only",
       "reduce-scatter (sum) the gradient of all slots, without a factor"},
      {"S5", "all-reduce of each rank's own slice", "every rank adds up gradients of different samples",
       "all-reduce all slots, then take the own one; or reduce-scatter"},
      {"S6", "mean instead of sum in the adjoint",
       "the part of the keys is 1/W of the truth, that of the queries right",
       "the adjoint of a gather is a sum; leave the mean to the reducer"},
      {"S7", "reduced twice in the adjoint", "the part of the keys is W times the truth", "reduce once"},
      {"S8", "the reducer sums instead of averaging", "every gradient, also of shared scalars, is W times the truth",
       "let the reducer average, or divide the loss by the number of ranks"},
      {"S9", "an additional 1/W", "every gradient, also of shared scalars, is 1/W of the truth",
       "divide by the number of ranks once"},
      {"S12", "mean of the means of uneven shards", "each rank's rows weigh B / (W b_r) times what they should",
       "divide sums by the number of samples of all ranks"},
      {"S13", "padding counted", "all rows weigh B / (W b_max) times what they should", "count real rows"},
      {"S14", "the accumulated buffer is reduced again, as a sum", "micro-batch k counts W^(A-1-k) times",
       "reduce what was added since the last reduction only"},
      {"S15", "a later backward overwrites", "only the last micro-batch is left", "accumulate"},
      {"S16", "averaging over micro-batches misplaced", "a uniform factor that depends on their number A",
       "divide by A once"},
      {"S17", "reduced at the wrong micro-batch", "later micro-batches stay local: ranks disagree",
       "reduce after the last micro-batch"},
      {"S18", "lost where the last micro-batch does not use it", "the gradient is zero", "reduce every parameter"},
      {"S20", "the key gradient is not sent home", "one tower is right, the other has only what its own rank says",
       "send the gradient of travelled features back to their owners and add it there"},
      {"S22", "bucket never reduced", "each rank keeps its own gradient", "reduce every bucket"},
      {"S23", "stale bucket", "the gradient is that of the step before", "wait for the reduction of this step"},
      {"S24", "read before completion", "the contributions of some ranks are missing", "wait before reading"},
      {"S25", "labels not offset by the rank", "rank 0 is right, all others pull towards rank 0's samples",
       "add the number of the rank's first row to its labels"},
      {"S26", "replicas have diverged", "ranks differentiate at different parameters",
       "broadcast parameters, codebooks and buffers before training, and reduce all of their gradients"},
      {"S33", "divided by some other count", "a uniform factor that is a ratio of counts",
       "divide by the number of samples of all ranks"},
  };
  return all;
}

const Signature& signature(const std::string& id) {
  for (const Signature& each : signatures())
    if (each.id == id) return each;
  throw std::logic_error("no signature is called " + id);
}

namespace {

double factor_of(Reducer reducer, int ranks) { return reducer == Reducer::mean ? ranks : 1; }

// How much of each part of the gradient reaches a feature.
struct Shares {
  double direct = 1, own_slot = 1, other_slots = 1, others_own_slots = 0, scalars = 1;
};

struct SeamModel {
  const SeamEvidence& seam;
  double factor;
  std::vector<Part> parts;

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
          if (share.other_slots != 0) g += share.other_slots * weight(q) * other.slot(seam.batch, tower, r);
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
  bool has_keys(size_t tower) const {
    return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return !part.keys[tower].isZero(0); });
  }
  Prediction predict(const Shares& shares) const {
    return predict([&](size_t) { return shares; });
  }
};

Matrix flat(const std::vector<Matrix>& all) {
  Matrix sum = all[0];
  for (size_t i = 1; i < all.size(); ++i) sum += all[i];
  return sum;
}

}  // namespace

// Scalars are compared after the reducer: ranks may share a loss or each have all of it.
Observed observed(const SeamEvidence& seam, Reducer reducer) {
  Observed result;
  for (size_t tower = 0; tower < seam.loss->towers.size(); ++tower)
    for (int r = 0; r < seam.batch.ranks(); ++r) {
      result.names.push_back(seam.loss->towers[tower] + " of rank " + std::to_string(r));
      result.tensors.push_back(seam.gradients[tower][static_cast<size_t>(r)]);
    }
  for (const auto& name : seam.loss->scalars) {
    const auto found = seam.scalars.find(name);
    if (found == seam.scalars.end()) continue;
    double sum = 0;
    for (const double g : found->second) sum += g;
    result.names.push_back(name);
    result.tensors.push_back(Matrix::Constant(1, 1, reducer == Reducer::mean ? sum / seam.batch.ranks() : sum));
  }
  return result;
}

std::vector<Hypothesis> hypotheses(const SeamEvidence& given, Reducer reducer, const Rounding& rounding) {
  SeamEvidence seam = given;
  for (auto& tower : seam.batch.features)
    for (Matrix& m : tower) rounding.apply(m);
  for (auto& [name, value] : seam.batch.scalars) value = rounding(value);
  const double w = seam.batch.ranks(), all = static_cast<double>(seam.batch.all_rows());
  const SeamModel model{seam, factor_of(reducer, seam.batch.ranks()),
                        seam.loss->parts(seam.batch, rounding, Labels::global)};
  std::vector<Hypothesis> result;
  const auto add = [&](const char* id, const char* variant, Prediction prediction) {
    if (prediction.applies) result.push_back({&signature(id), variant, std::move(prediction)});
  };
  add("S0", "", model.predict(Shares()));
  add("S1", "each rank computes its own rows", model.predict({.own_slot = 0, .other_slots = 0}));
  add("S1", "every rank computes the whole loss", model.predict({.direct = 0, .own_slot = 0, .other_slots = 0}));
  add("S2", "", model.predict({.other_slots = 0}));
  add("S3", "", model.predict({1 / w, 1 / w, 1 / w}));
  add("S4", "", model.predict({.own_slot = w, .other_slots = 0}));
  add("S5", "each rank computes its own rows", model.predict({.other_slots = 0, .others_own_slots = 1}));
  add("S5", "every rank computes the whole loss", model.all_reduced_slices());
  add("S6", "", model.predict({1, 1 / w, 1 / w}));
  add("S7", "each rank computes its own rows", model.predict({1, w, w}));
  add("S7", "every rank computes the whole loss", model.predict({w, w, w}));
  add("S8", "", model.predict({w, w, w, 0, w}));
  add("S9", "", model.predict({1 / w, 1 / w, 1 / w, 0, 1 / w}));
  std::vector<double> uneven, padded;
  Eigen::Index largest = 0;
  for (int r = 0; r < seam.batch.ranks(); ++r) largest = std::max(largest, seam.batch.rows(r));
  bool even = true;
  for (int r = 0; r < seam.batch.ranks(); ++r) {
    const auto rows = static_cast<double>(seam.batch.rows(r));
    even = even && seam.batch.rows(r) == largest;
    uneven.push_back(rows == 0 ? 0 : all / (w * rows));
    padded.push_back(all / (w * static_cast<double>(largest)));
  }
  if (!even) {
    add("S12", "", model.predict([](size_t) { return Shares(); }, uneven));
    add("S13", "", model.predict([](size_t) { return Shares(); }, padded));
  }
  for (size_t tower = 0; tower < model.towers(); ++tower) {
    if (!model.has_keys(tower)) continue;
    const auto kept = [&](size_t t) { return t == tower ? Shares{.other_slots = 0} : Shares(); };
    add("S20", (seam.loss->towers[tower] + " stay without it").c_str(), model.predict(kept));
  }
  SeamModel local = model;
  local.parts = seam.loss->parts(seam.batch, rounding, Labels::local);
  add("S25", "", local.predict(Shares()));
  return result;
}

Observed observed(const ParameterEvidence& parameter) {
  Observed result;
  for (size_t r = 0; r < parameter.reduced.size(); ++r) {
    result.names.push_back(parameter.name + " on rank " + std::to_string(r));
    result.tensors.push_back(parameter.reduced[r]);
  }
  return result;
}

std::vector<Hypothesis> hypotheses(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding) {
  const auto ranks = parameter.local.size(), passes = parameter.local[0].size();
  const double w = static_cast<double>(ranks), a = static_cast<double>(passes);
  const double unit = dump.reducer == Reducer::mean ? 1 / w : 1;
  std::vector<std::vector<Matrix>> local = parameter.local;
  for (auto& of_rank : local)
    for (Matrix& m : of_rank) rounding.apply(m);
  std::vector<Matrix> sums;  // over ranks, by micro-batch
  for (size_t k = 0; k < passes; ++k) {
    std::vector<Matrix> of_ranks;
    for (size_t r = 0; r < ranks; ++r) of_ranks.push_back(local[r][k]);
    sums.push_back(flat(of_ranks));
  }
  const Matrix truth = unit * flat(sums);
  const Matrix zero = Matrix::Zero(truth.rows(), truth.cols());
  std::vector<Hypothesis> result;
  const auto add = [&](const char* id, std::string variant, std::vector<Matrix> of_ranks) {
    result.push_back({&signature(id), std::move(variant), {std::move(of_ranks)}});
  };
  const auto everywhere = [&](const char* id, std::string variant, const Matrix& m) {
    add(id, std::move(variant), std::vector<Matrix>(ranks, m));
  };
  everywhere("S0", "", truth);
  everywhere("S8", "", w * truth);
  everywhere("S9", "", truth / w);
  if (passes > 1) {
    Matrix geometric = zero;
    for (size_t k = 0; k < passes; ++k) geometric += std::pow(w, a - 1 - static_cast<double>(k)) * sums[k];
    everywhere("S14", "", unit * geometric);
    everywhere("S15", "", unit * sums.back());
    everywhere("S16", "multiplied by A", a * truth);
    everywhere("S16", "divided by A once more", truth / a);
    everywhere("S16", "a window of A - 1", (a - 1) / a * truth);
    for (size_t at = 0; at + 1 < passes; ++at) {
      std::vector<Matrix> of_ranks;
      for (size_t r = 0; r < ranks; ++r) {
        Matrix g = zero;
        for (size_t k = 0; k <= at; ++k) g += unit * sums[k];
        for (size_t k = at + 1; k < passes; ++k) g += local[r][k];
        of_ranks.push_back(std::move(g));
      }
      add("S17", "after micro-batch " + std::to_string(at), std::move(of_ranks));
    }
  }
  everywhere("S18", "", zero);
  std::vector<Matrix> own;
  for (size_t r = 0; r < ranks; ++r) own.push_back(flat(local[r]));
  add("S22", "", own);
  if (parameter.previous.size() == ranks) add("S23", "", parameter.previous);
  for (size_t missing = 1; missing + 1 < size_t{1} << ranks && ranks <= 8; ++missing) {
    Matrix g = zero;
    std::string names;
    for (size_t r = 0; r < ranks; ++r)
      if (missing >> r & 1)
        names += (names.empty() ? "" : ", ") + std::to_string(r);
      else
        g += unit * own[r];
    everywhere("S24", "without rank " + names, g);
  }
  if (dump.rows.size() == ranks) {
    double all = 0;
    for (const int64_t rows : dump.rows) all += static_cast<double>(rows);
    everywhere("S33", "by the number of samples", truth / all);
    everywhere("S33", "multiplied by the number of samples", truth * all);
    everywhere("S33", "by the number of elements", truth / static_cast<double>(truth.size()));
  }
  return result;
}

}  // namespace weft::verify
