// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which hypothesis explains a dump. Errors are told as multiples of expected rounding, which is found by computing the
// prediction again with inputs and intermediate results off by the precision of the dump: there is no tolerance to set.
#include <optional>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {

struct Comparison {
  std::string tensor;
  int64_t elements = 0;
  double error = 0;  // in multiples of expected rounding
  double cosine = 1, ratio = 1;
  int64_t worst_element = 0;
  double dumped = 0, expected = 0;   // there
  std::optional<double> shown = {};  // of a step: the smallest factor that would be an error, less one
};
// `rounding`: how far apart the two may be expected to be.
Comparison compared(const std::string& name, const Matrix& dumped, const Matrix& truth, double rounding);

struct Explained {
  const Signature* signature;
  std::string variant;
  double error;  // the largest of its tensors
};
std::string title(const Signature& signature, const std::string& variant);  // "S33 (by the number of samples)"

// A mistake that has no signature.
struct Described {
  std::string text;  // "the gradients of ranks 0 to 2 weigh 1/2, 1 and 3/2 times what they should"
  double error;
  std::string repair = "compare what each rank and micro-batch counts with its share of the batch";
};

// The smallest mistakes that a dump shows, relative to what is right: of all of a tensor, and of one of its rows.
struct Resolution {
  double factor = 0, row = 0;
  void worsen(const Resolution& other);
};

enum class Outcome { correct, wrong, cannot_tell };

struct Verdict {
  std::string subject;  // "the loss 'clip'", "parameter 'encoder.weight'"
  Outcome outcome = Outcome::correct;
  std::vector<Comparison> table;  // against the truth
  std::optional<Explained> best, runner_up;
  std::optional<Described> described;     // where there is no best
  std::vector<std::string> same_as_best;  // signatures that predict the same numbers here
  std::vector<std::string> blind_to;      // signatures whose numbers are those of the truth here
  std::vector<std::string> remarks;
  std::optional<Resolution> resolution;
  std::optional<double> factor;  // by which the truth is to be multiplied, if that explains all tensors
};

Verdict verdict(const SeamEvidence& seam, const Dump& dump);
Verdict verdict(const LayerEvidence& layer);
Verdict verdict(const ParameterEvidence& parameter, const Dump& dump);
// Of what the optimizer has added to it.
Verdict update_verdict(const ParameterEvidence& parameter, const Dump& dump);
Verdict verdict(const NormEvidence& norm, const Dump& dump);
// Whether the gradients of any model are those of its objective, by differences of the objective: one verdict for each
// parameter that was moved.
std::vector<Verdict> scale_verdicts(const Dump& dump);
// Whether the gradients of a step are those that one process has with the whole batch (step_verdict.h).
Verdict verdict(const StepEvidence& step, const Dump& dump);
std::vector<Verdict> verdicts(const Dump& dump);
Outcome overall(const std::vector<Verdict>& verdicts);

}  // namespace weft::verify
