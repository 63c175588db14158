// SPDX-License-Identifier: Apache-2.0
#pragma once
// Queries that each have one key that they should pick among all.
#include <vector>

#include "tools/weft/truth/truth.h"

namespace weft::verify {

// Of each query: the key to pick, or -1, and the one that it may not pick, or -1.
struct Choice {
  std::vector<Eigen::Index> positives, selves;
};

// What they give to a loss, and its gradient.
struct Picked {
  double value = 0, by_scale = 0, by_bias = 0;
  Matrix by_queries, by_keys;
};

// Scores are factor q.k + bias. The gradient of a scale that is not learned is not computed.
struct Scale {
  double factor, bias = 0;
  bool is_learned = false;
};

struct Queries {
  const Matrix &queries, &keys;
  double weight;  // of each of them in the loss
  const Scale& scale;
  const Rounding& rounding;
};

// One for each choice. They share the scores, and the products of what they have in common.
// -log softmax(scores)[positive]; in DCL the positive does not compete in the denominator.
std::vector<Picked> by_softmax(const Queries& of, const std::vector<Choice>& choices, bool positive_competes = true);
// Sum over all keys of log(1 + exp(-score)) for the positive and of log(1 + exp(score)) for others.
std::vector<Picked> by_sigmoids(const Queries& of, const std::vector<Choice>& choices);

}  // namespace weft::verify
