// SPDX-License-Identifier: Apache-2.0
// What each mistake of a reducer makes of the gradient of a parameter.
#include <cmath>

#include "tools/weft/signatures.h"

namespace weft::verify {
namespace {

Matrix sum_of(const std::vector<Matrix>& all) {
  Matrix sum = all[0];
  for (size_t i = 1; i < all.size(); ++i) sum += all[i];
  return sum;
}

struct ReducerModel {
  std::vector<std::vector<Matrix>> local;  // by rank and micro-batch
  double unit;                             // what the reducer multiplies a sum over ranks by
  std::vector<Matrix> of_pass, of_rank;    // sums over ranks, and over micro-batches
  Matrix truth;
  std::vector<Hypothesis> all = {};

  ReducerModel(std::vector<std::vector<Matrix>> gradients, Reducer reducer)
      : local(std::move(gradients)), unit(reducer == Reducer::mean ? 1 / ranks() : 1) {
    for (const auto& of_passes : local) of_rank.push_back(sum_of(of_passes));
    for (size_t k = 0; k < local[0].size(); ++k) {
      Matrix sum = local[0][k];
      for (size_t r = 1; r < local.size(); ++r) sum += local[r][k];
      of_pass.push_back(std::move(sum));
    }
    truth = unit * sum_of(of_pass);
  }

  double ranks() const { return static_cast<double>(local.size()); }
  double passes() const { return static_cast<double>(of_pass.size()); }
  Matrix zero() const { return Matrix::Zero(truth.rows(), truth.cols()); }

  void add(const char* id, std::string variant, std::vector<Matrix> of_ranks) {
    all.push_back({&signature(id), std::move(variant), {std::move(of_ranks)}});
  }
  void add(const char* id, std::string variant, const Matrix& everywhere) {
    add(id, std::move(variant), std::vector<Matrix>(local.size(), everywhere));
  }

  void add_factors(const std::vector<int64_t>& rows) {
    add("S0", "", truth);
    add("S8", "", ranks() * truth);
    add("S9", "", truth / ranks());
    add("S33", "by the number of elements", truth / static_cast<double>(truth.size()));
    double samples = 0;
    for (const int64_t each : rows) samples += static_cast<double>(each);
    if (samples == 0) return;
    add("S33", "by the number of samples", truth / samples);
    add("S33", "multiplied by the number of samples", truth * samples);
  }

  void add_accumulation() {
    if (passes() < 2) return;
    Matrix geometric = zero();
    for (size_t k = 0; k < of_pass.size(); ++k)
      geometric += std::pow(ranks(), passes() - 1 - static_cast<double>(k)) * of_pass[k];
    add("S14", "", unit * geometric);
    add("S15", "", unit * of_pass.back());
    add("S16", "multiplied by A", passes() * truth);
    add("S16", "divided by A once more", truth / passes());
    add("S16", "a window of A - 1", (passes() - 1) / passes() * truth);
    for (size_t last = 0; last + 1 < of_pass.size(); ++last) add_early_reduction(last);
  }

  // Micro-batches up to `last` are reduced, later ones stay local.
  void add_early_reduction(size_t last) {
    std::vector<Matrix> of_ranks(local.size(), zero());
    for (size_t r = 0; r < local.size(); ++r)
      for (size_t k = 0; k < of_pass.size(); ++k)
        if (k <= last)
          of_ranks[r] += unit * of_pass[k];
        else
          of_ranks[r] += local[r][k];
    add("S17", "after micro-batch " + std::to_string(last), std::move(of_ranks));
  }

  // Every set of ranks could be missing; with more than eight of them, only sets of one are tried.
  void add_missing_ranks() {
    const size_t sets = size_t{1} << local.size();
    if (local.size() > 8) {
      for (size_t r = 0; r < local.size(); ++r)
        add("S24", "without rank " + std::to_string(r), truth - unit * of_rank[r]);
      return;
    }
    for (size_t missing = 1; missing + 1 < sets; ++missing) {
      Matrix rest = zero();
      std::string names;
      for (size_t r = 0; r < local.size(); ++r)
        if (missing >> r & 1)
          names += (names.empty() ? "" : ", ") + std::to_string(r);
        else
          rest += unit * of_rank[r];
      add("S24", "without rank " + names, rest);
    }
  }
};

}  // namespace

Observed observed(const ParameterEvidence& parameter) {
  Observed result;
  for (size_t r = 0; r < parameter.reduced.size(); ++r) {
    result.names.push_back(parameter.name + " on rank " + std::to_string(r));
    result.tensors.push_back(parameter.reduced[r]);
  }
  return result;
}

std::vector<Hypothesis> hypotheses(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding) {
  std::vector<std::vector<Matrix>> local = parameter.local;
  for (auto& of_rank : local)
    for (Matrix& m : of_rank) rounding.apply(m);
  ReducerModel model(std::move(local), dump.reducer);
  model.add_factors(dump.rows);
  model.add_accumulation();
  model.add("S18", "", model.zero());
  model.add("S22", "", model.of_rank);
  if (!parameter.previous.empty()) model.add("S23", "", parameter.previous);
  model.add_missing_ranks();
  return std::move(model.all);
}

}  // namespace weft::verify
