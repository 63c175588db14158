// SPDX-License-Identifier: Apache-2.0
#pragma once
// The catalogue of mistakes: what each makes of a gradient. A signature turns the truth into the numbers that its
// mistake would have dumped; the verdict is the one whose numbers are nearest.
#include <functional>

#include "tools/weft/dump/evidence.h"

namespace weft::verify {

struct Signature {
  std::string id;      // "S3"
  std::string name;    // "own slot re-inserted"
  std::string effect;  // what it does to gradients
  std::string repair;
};
const std::vector<Signature>& signatures();
const Signature& signature(const std::string& id);

// The numbers of a dump that a signature predicts, in one order for all hypotheses: names, and a matrix for each.
struct Prediction {
  std::vector<Matrix> tensors;
  bool applies = true;
};
struct Hypothesis {
  const Signature* signature;
  std::string variant;  // such as "with local rows", or "from micro-batch 2"
  Prediction prediction;
};

// Tensors of a dump by name, as hypotheses predict them.
struct Observed {
  std::vector<std::string> names;
  std::vector<Matrix> tensors;
  std::vector<Eigen::Index> columns;  // of each: how many elements belong to an index of the first dimension

  void add(std::string name, const Matrix& tensor) { add(std::move(name), tensor, tensor.cols()); }
  void add(std::string name, const Matrix& tensor, Eigen::Index of_row);
};

// One tensor for each rank, called NAME and the rank.
Observed observed(const std::string& name, const std::vector<Matrix>& of_ranks);

Observed observed(const SeamEvidence& seam, Reducer reducer);
// The first is S0, the truth.
std::vector<Hypothesis> hypotheses(const SeamEvidence& seam, const Dump& dump, const Rounding& rounding);
// Of a loss of statistics. What reaches the features is `factor` times the derivative of the loss.
std::vector<Hypothesis> statistics_hypotheses(const SeamEvidence& seam, double factor, const Rounding& rounding);

Observed observed(const LayerEvidence& layer);
std::vector<Hypothesis> hypotheses(const LayerEvidence& layer, const Rounding& rounding);

Observed observed(const ParameterEvidence& parameter);
std::vector<Hypothesis> hypotheses(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding);

// Of what the optimizer adds to a parameter, whose gradient the reducer has made as it should, or otherwise.
Observed observed_update(const ParameterEvidence& parameter);
std::vector<Hypothesis> update_hypotheses(const ParameterEvidence& parameter, const Dump& dump,
                                          const Rounding& rounding);

Observed observed(const NormEvidence& norm);
std::vector<Hypothesis> hypotheses(const NormEvidence& norm, const Dump& dump, const Rounding& rounding);

}  // namespace weft::verify
