// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/explain/rounded.h"

#include <algorithm>
#include <cmath>

#include "tools/weft/explain/given.h"

namespace weft::verify {
namespace {

struct LowerPrecision {
  const char* name;
  double epsilon;
  double (*round)(double);
};
template <class T> double through(double x) { return static_cast<double>(T(static_cast<float>(x))); }
const std::vector<LowerPrecision> lower_precisions = {{"f16", 0x1p-11, through<Eigen::half>},
                                                      {"bf16", 0x1p-8, through<Eigen::bfloat16>}};

// The local gradients as such a step leaves them.
struct RoundedStep {
  const char* where;
  void (*act)(std::vector<Matrix>& of_rank, const LowerPrecision& lower);
  bool of_micro_batches;
};

void round_each(std::vector<Matrix>& of_rank, const LowerPrecision& lower) {
  for (Matrix& each : of_rank) each = each.unaryExpr(lower.round).eval();
}
void round_sum(std::vector<Matrix>& of_rank, const LowerPrecision& lower) {
  Matrix sum = of_rank[0];
  for (size_t k = 1; k < of_rank.size(); ++k) sum += of_rank[k];
  of_rank = {sum.unaryExpr(lower.round)};
}
void round_each_sum(std::vector<Matrix>& of_rank, const LowerPrecision& lower) {
  Matrix sum = of_rank[0].unaryExpr(lower.round);
  for (size_t k = 1; k < of_rank.size(); ++k) sum = (sum + of_rank[k]).unaryExpr(lower.round).eval();
  of_rank = {sum};
}
// In what is stored in the end, ties may have gone either way.
bool stored_in(const LowerPrecision& lower, const std::vector<Matrix>& made, const std::vector<Matrix>& truth,
               double off_by) {
  for (size_t r = 0; r < truth.size(); ++r)
    for (Eigen::Index i = 0; i < truth[r].size(); ++i) {
      const double there = made[r](i), right = truth[r](i), slack = off_by * std::abs(right);
      if (there != lower.round(there) || there < lower.round(right - slack) || there > lower.round(right + slack))
        return false;
    }
  return true;
}

}  // namespace

std::optional<std::string> stored_in_lower(const std::vector<Matrix>& made, const std::vector<Matrix>& truth,
                                           double epsilon, double off_by) {
  for (const LowerPrecision& lower : lower_precisions)
    if (epsilon < lower.epsilon && stored_in(lower, made, truth, off_by)) return lower.name;
  return std::nullopt;
}

std::optional<Explained> rounded_once(const ParameterEvidence& parameter, const Dump& dump) {
  const Given given(parameter, dump);
  const std::vector<RoundedStep> steps = {{"where gradients of micro-batches are accumulated", round_each_sum, true},
                                          {"where gradients of micro-batches are computed", round_each, true},
                                          {"where each rank's gradient is sent", round_sum, false}};
  const std::vector<Matrix> truth = should_be(parameter, dump);
  for (const LowerPrecision& lower : lower_precisions) {
    if (parameter.precision.epsilon >= lower.epsilon) continue;
    const auto found = [&](const char* where, double error) {
      return Explained{&signature("S28"), std::string("in ") + lower.name + ", " + where, error};
    };
    for (const auto& [where, act, of_micro_batches] : steps) {
      if (of_micro_batches && given.passes() == 1) continue;
      ParameterEvidence rounded = parameter;
      for (auto& of_rank : rounded.local) act(of_rank, lower);
      rounded.uses.clear();
      const Given of_rounded(rounded, dump);
      const double error = of_rounded.error([&](const ParameterEvidence& of) { return should_be(of, dump); });
      if (error <= limit) return found(where, error);
    }
    if (stored_in(lower, given.made.tensors, truth, limit * parameter.precision.epsilon))
      return found("where the result is stored", 0);
  }
  return std::nullopt;
}

}  // namespace weft::verify
