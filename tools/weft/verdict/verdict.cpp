// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/verdict.h"

#include <algorithm>
#include <cmath>

#include "tools/weft/explain/explain.h"
#include "tools/weft/explain/norms.h"
#include "tools/weft/explain/updates.h"
#include "tools/weft/verdict/classes.h"
#include "tools/weft/verdict/expected_rounding.h"
#include "tools/weft/verdict/streamed_verdict.h"
#include "tools/weft/verdict/unexplained.h"

namespace weft::verify {
namespace {

double norm(const Matrix& m) { return m.norm(); }

using Roundings = std::vector<std::vector<ExpectedRounding>>;  // by hypothesis and tensor

Roundings expected_rounding(const std::vector<Hypothesis>& exact,
                            const std::function<std::vector<Hypothesis>(const Rounding&)>& predict,
                            const std::vector<Eigen::Index>& columns, double epsilon, int repetitions) {
  Roundings all(exact.size());
  const auto each = [&](auto act) {
    for (size_t h = 0; h < exact.size(); ++h)
      for (size_t t = 0; t < columns.size(); ++t) act(h, t, exact[h].prediction.tensors[t]);
  };
  each([&](size_t h, size_t t, const Matrix& x) { all[h].emplace_back(x, columns[t], epsilon); });
  for (int k = 0; k < repetitions; ++k) {
    const Rounding rounding{epsilon, Rounding::Generator(static_cast<uint64_t>(k) + 1)};
    const std::vector<Hypothesis> rounded = predict(rounding);
    each([&](size_t h, size_t t, const Matrix& x) { all[h][t].add(x, rounded[h].prediction.tensors[t]); });
  }
  each([&](size_t h, size_t t, const Matrix& x) { all[h][t].finish(x); });
  return all;
}

double error_of(const Matrix& dumped, const Matrix& predicted, double rounding) {
  if (!dumped.allFinite() || !predicted.allFinite()) return std::numeric_limits<double>::infinity();
  const double distance = (dumped - predicted).norm();
  return distance == 0 ? 0 : distance / rounding;
}

}  // namespace

Comparison compared(const std::string& name, const Matrix& dumped, const Matrix& truth, double rounding) {
  Comparison result{name, dumped.size()};
  if (dumped.size() == 0) return result;
  result.error = error_of(dumped, truth, rounding);
  const double product = norm(dumped) * norm(truth);
  result.cosine = product == 0 ? (norm(dumped) == norm(truth) ? 1 : 0) : dumped.cwiseProduct(truth).sum() / product;
  result.ratio =
      norm(truth) == 0 ? (norm(dumped) == 0 ? 1 : std::numeric_limits<double>::infinity()) : norm(dumped) / norm(truth);
  Eigen::Index row = 0, column = 0;
  (dumped - truth).cwiseAbs().maxCoeff(&row, &column);
  result.worst_element = row * dumped.cols() + column;
  result.dumped = dumped(row, column);
  result.expected = truth(row, column);
  return result;
}

void Resolution::worsen(const Resolution& other) {
  factor = std::max(factor, other.factor);
  row = std::max(row, other.row);
}

std::string title(const Signature& signature, const std::string& variant) {
  return signature.id + (variant.empty() ? "" : " (" + variant + ")");
}

namespace {

// Nothing can be said of tensors with a single element, which are a multiple of any other.
std::optional<double> common_factor(const Observed& dumped, const Hypothesis& truth,
                                    const std::vector<ExpectedRounding>& rounding) {
  double product = 0, square = 0;
  Eigen::Index elements = 0;
  for (size_t t = 0; t < dumped.tensors.size(); ++t) {
    const Matrix& exact = truth.prediction.tensors[t];
    product += dumped.tensors[t].cwiseProduct(exact).sum();
    square += exact.squaredNorm();
    elements = std::max(elements, exact.size());
  }
  if (elements < 2 || square == 0 || product == 0 || !std::isfinite(product)) return std::nullopt;
  const double factor = product / square;
  for (size_t t = 0; t < dumped.tensors.size(); ++t)
    if (rounding[t].error(dumped.tensors[t], factor * truth.prediction.tensors[t], std::abs(factor)) > limit)
      return std::nullopt;
  return factor;
}

std::string title(const Hypothesis& h) { return title(*h.signature, h.variant); }

struct Judged {
  const Observed& dumped;
  const std::vector<Hypothesis>& all;
  const Roundings& rounding;

  double error(size_t h) const {
    double worst = 0;
    for (size_t t = 0; t < dumped.tensors.size(); ++t)
      worst = std::max(worst, rounding[h][t].error(dumped.tensors[t], all[h].prediction.tensors[t]));
    return worst;
  }
  // Whether two hypotheses predict the same numbers, as far as this precision can tell.
  bool alike(size_t a, size_t b) const {
    for (size_t t = 0; t < dumped.tensors.size(); ++t) {
      const Matrix &of_a = all[a].prediction.tensors[t], &of_b = all[b].prediction.tensors[t];
      if (std::min(rounding[a][t].error(of_b, of_a), rounding[b][t].error(of_a, of_b)) > limit) return false;
    }
    return true;
  }
};

// The truth if that explains the dump, else the hypothesis that explains it best, if one does. The runner-up is the
// next one that predicts other numbers, or the best of all where none explains the dump.
void explain(Verdict& verdict, const Judged& judged) {
  std::vector<std::pair<double, size_t>> errors;
  for (size_t h = 0; h < judged.all.size(); ++h) errors.emplace_back(judged.error(h), h);
  const auto explained = [&](const std::pair<double, size_t>& by) {
    return Explained{judged.all[by.second].signature, judged.all[by.second].variant, by.first};
  };
  if (errors[0].first <= limit) {
    verdict.best = explained(errors[0]);
    return;
  }
  verdict.outcome = Outcome::wrong;
  std::sort(errors.begin(), errors.end());
  if (errors[0].first > limit) {
    verdict.runner_up = explained(errors[0]);
    return;
  }
  verdict.best = explained(errors[0]);
  for (size_t i = 1; i < errors.size() && !verdict.runner_up; ++i) {
    const size_t h = errors[i].second;
    if (h == 0) continue;
    if (judged.alike(errors[0].second, h))
      verdict.same_as_best.push_back(title(judged.all[h]));
    else
      verdict.runner_up = explained(errors[i]);
  }
}

Verdict judge(std::string subject, const Observed& dumped, const Precision& precision, int repetitions,
              const std::function<std::vector<Hypothesis>(const Rounding&)>& predict) {
  const std::vector<Hypothesis> all = predict(Rounding());
  const Roundings rounding = expected_rounding(all, predict, dumped.columns, precision.epsilon, repetitions);
  const Judged judged{dumped, all, rounding};
  Verdict result;
  result.subject = std::move(subject);
  int64_t elements = 0;
  for (size_t t = 0; t < dumped.tensors.size(); ++t) {
    elements += dumped.tensors[t].size();
    const Matrix& truth = all[0].prediction.tensors[t];
    result.table.push_back(compared(dumped.names[t], dumped.tensors[t], truth, rounding[0][t].whole()));
    result.table.back().error = rounding[0][t].error(dumped.tensors[t], truth);
    if (truth.squaredNorm() == 0) continue;
    if (!result.resolution) result.resolution.emplace();
    result.resolution->worsen({rounding[0][t].factor_shown(limit), rounding[0][t].row_shown(truth, limit)});
  }
  if (elements == 0) {
    result.outcome = Outcome::cannot_tell;
    result.remarks.push_back("no elements were compared: dump gradients of at least one feature or parameter");
    return result;
  }
  for (size_t t = 0; t < dumped.tensors.size(); ++t)
    if (!dumped.tensors[t].allFinite())
      result.remarks.push_back(dumped.names[t] + ": the dumped gradient is not finite");
  for (size_t h = 1; h < all.size(); ++h)
    if (judged.alike(0, h)) result.blind_to.push_back(title(all[h]));
  result.factor = common_factor(dumped, all[0], rounding[0]);
  explain(result, judged);
  return result;
}

}  // namespace

Verdict verdict(const SeamEvidence& seam, const Dump& dump) {
  // Large batches take long, and have elements enough to average over.
  const int repetitions = seam.batch.all_rows() <= 512 ? 8 : seam.batch.all_rows() <= 2048 ? 2 : 1;
  return judge("the loss '" + seam.loss->name + "'", observed(seam, dump.reducer), seam.precision, repetitions,
               [&](const Rounding& rounding) { return hypotheses(seam, dump, rounding); });
}

Verdict verdict(const LayerEvidence& layer) {
  return judge("layer '" + layer.name + "'", observed(layer), layer.precision, 4,
               [&](const Rounding& rounding) { return hypotheses(layer, rounding); });
}

static Verdict held_verdict(const ParameterEvidence& parameter, const Dump& dump) {
  Verdict result = judge("parameter '" + parameter.name + "'", observed(parameter), parameter.precision, 4,
                         [&](const Rounding& rounding) { return hypotheses(parameter, dump, rounding); });
  if (result.outcome == Outcome::wrong && !result.best) explain(result, parameter, dump);
  return result;
}

Verdict verdict(const ParameterEvidence& parameter, const Dump& dump) {
  Verdict result = parameter.stored ? streamed_verdict(parameter, dump) : held_verdict(parameter, dump);
  for (const std::string& hash : parameter.hashes)
    if (hash != parameter.hashes[0]) {
      result.outcome = Outcome::wrong;
      result.best = Explained{&signature("S26"), "the hashes of the parameter differ between ranks", 0};
      result.runner_up.reset();
      result.same_as_best.clear();
    }
  return result;
}

Verdict update_verdict(const ParameterEvidence& parameter, const Dump& dump) {
  const std::string subject = "the update of '" + parameter.name + "'";
  if (parameter.stored) {
    Verdict untold;
    untold.subject = subject;
    untold.outcome = Outcome::cannot_tell;
    untold.remarks = {"updates are checked in dumps of fewer elements: dump some of the parameters"};
    return untold;
  }
  const auto predict = [&](const Rounding& rounding) { return update_hypotheses(parameter, dump, rounding); };
  Verdict result = judge(subject, observed_update(parameter), parameter.update->precision, 4, predict);
  if (result.outcome == Outcome::wrong && !result.best)
    explain_update(result, parameter, dump, predict(Rounding())[0].prediction.tensors);
  return result;
}

Verdict verdict(const NormEvidence& norm, const Dump& dump) {
  Verdict result = judge("the norm of all gradients", observed(norm), norm.precision, 4,
                         [&](const Rounding& rounding) { return hypotheses(norm, dump, rounding); });
  if (result.outcome == Outcome::wrong && !result.best) result.described = described(norm, dump);
  return result;
}

std::vector<Verdict> verdicts(const Dump& dump) {
  std::vector<Verdict> all;
  if (dump.seam) all.push_back(verdict(*dump.seam, dump));
  for (const LayerEvidence& layer : dump.layers) all.push_back(verdict(layer));
  std::vector<Classified> classified;
  for (const ParameterEvidence& parameter : dump.parameters)
    if (parameter.has_local())
      classified.push_back(
          {class_of(layout_of(parameter, dump), mesh_of(dump)), parameter.precision, verdict(parameter, dump)});
  compare_classes(classified);
  for (Classified& each : classified) all.push_back(std::move(each.verdict));
  for (const ParameterEvidence& parameter : dump.parameters)
    if (parameter.update || (parameter.stored && !parameter.stored->update.empty()))
      all.push_back(update_verdict(parameter, dump));
  if (dump.norm) all.push_back(verdict(*dump.norm, dump));
  if (dump.step) all.push_back(verdict(*dump.step, dump));
  if (dump.scale) std::ranges::move(scale_verdicts(dump), std::back_inserter(all));
  return all;
}

Outcome overall(const std::vector<Verdict>& verdicts) {
  const auto any = [&](Outcome outcome) {
    return std::any_of(verdicts.begin(), verdicts.end(), [=](const Verdict& v) { return v.outcome == outcome; });
  };
  if (any(Outcome::wrong)) return Outcome::wrong;
  return verdicts.empty() || any(Outcome::cannot_tell) ? Outcome::cannot_tell : Outcome::correct;
}

}  // namespace weft::verify
