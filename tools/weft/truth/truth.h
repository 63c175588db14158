// SPDX-License-Identifier: Apache-2.0
#pragma once
// The truth: what a loss and its gradients are on one process with the whole batch, in f64, by Eigen. Nothing here is
// shared with Weft's engine, so a mistake there cannot hide here.
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tools/weft/truth/sample.h"

namespace weft::verify {

using Options = std::map<std::string, double>;

// What all ranks gave to a loss: features by tower and rank, (b_r, D) each, and numbers that all ranks have.
struct Batch {
  ByTowerAndRank features;
  std::map<std::string, double> scalars;  // "scale", "bias"
  Options options;                        // of the loss: "temperature", "normalize", ...

  int ranks() const { return static_cast<int>(features[0].size()); }
  Eigen::Index rows(int rank) const { return features[0][static_cast<size_t>(rank)].rows(); }
  Eigen::Index first_row(int rank) const;  // in the whole batch
  Eigen::Index all_rows() const { return first_row(ranks()); }
};

// What the rows of one rank contribute to the loss of the whole batch; the sum over ranks is the loss.
struct Part {
  double value = 0;
  std::vector<Matrix> own = {};   // gradient with respect to this rank's features as queries, by tower: (b_r, D)
  std::vector<Matrix> keys = {};  // gradient with respect to all features as keys, by tower: (B, D), in rank order
  std::map<std::string, double> scalars = {};
  // Of a loss of several directions, each of which has queries of one tower and keys of the other: scalars by tower.
  std::vector<std::map<std::string, double>> scalars_of_queries = {};

  Eigen::Ref<const Matrix> slot(const Batch& batch, size_t tower, int rank) const;  // of `keys`
};
using RankParts = std::vector<Part>;  // by rank

// Rounds as a lower precision would: every intermediate result is off by up to `epsilon`, relatively. None by default.
struct Rounding {
  double epsilon = 0;
  // Billions of numbers are drawn for a large batch: this takes one multiplication for each.
  using Generator = std::linear_congruential_engine<uint64_t, 6364136223846793005, 1442695040888963407, 0>;
  mutable Generator generator{0};
  double operator()(double x) const {
    return epsilon == 0 ? x : x * (1 + epsilon * (static_cast<double>(generator()) * 0x1p-63 - 1));
  }
  void apply(Matrix& x) const;
  double sum(Matrix terms) const;  // each of which is rounded
};

// A term of a loss that is a function of statistics of the whole batch, and its gradient by tower: (n, D).
struct Term {
  std::string name;
  bool of_rows;  // a mean of what each row says alone: ranks need nothing from each other
  std::vector<Matrix> gradients;
};

// The rows of the whole batch that the rows of a rank are paired with.
using Labels = std::vector<Eigen::Index> (*)(const Batch&, int rank);
std::vector<Eigen::Index> right_labels(const Batch& batch, int rank);

struct Loss {
  std::string name;
  std::vector<std::string> towers;        // the names of its features
  std::vector<std::string> scalars = {};  // that gradients flow to
  Options options = {};                   // and their defaults
  std::string formula;
  // One of these: of losses whose rows are divided among ranks, or of those that are functions of statistics.
  // The former are told for each way to count labels, of which the first should be the right one.
  std::vector<RankParts> (*parts)(const Batch&, const Rounding&, const std::vector<Labels>& ways) = nullptr;
  std::vector<Term> (*terms)(const Sample&, const Options&, const Rounding&) = nullptr;
  std::vector<std::string> targets = {};  // towers that may have no gradient
  Eigen::Index min_rows = 1;              // that it needs
  bool of_pairs = false;                  // a sum over pairs, none of which depends on others
};

const std::vector<Loss>& losses();
// Those among them that are functions of statistics of the whole batch, such as a mean or a covariance. They are
// computed of any sample: of all ranks' rows they are the truth, of a rank's own ones they are what it has without
// communication.
const std::vector<Loss>& losses_of_statistics();
const Loss* find_loss(const std::string& name);

}  // namespace weft::verify
