// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/weft/verdict/scale_causes.h"
#include "weft/collectives/checks/rank_factors.h"

namespace weft::verify {
namespace {

constexpr double max_resolution = 0.01;  // factors that are known less exactly show too few mistakes

std::string number(const char* format, double x) {
  char digits[40];
  std::snprintf(digits, sizeof digits, format, x);
  return digits;
}

// " is 0.333333 times what it should be: one over the number of ranks".
std::string in_words(const Factor& factor, int ranks) {
  if (!factor.is_multiple()) return std::string(" ") + no_multiple;
  const auto times = [](const std::string& value) { return " is " + value + " times what it should be"; };
  for (const auto& [value, name] : rank_factors(ranks))
    if (factor.is(value)) return times(number("%g", value)) + ": " + name;
  const int digits = std::clamp(static_cast<int>(-std::log10(factor.resolution())), 1, 6);
  return times(number(("%." + std::to_string(digits) + "g").c_str(), factor.is(0) ? 0 : factor.nearest()));
}

// What to dump so that a factor is known more exactly.
std::string what_to_dump(const Factor& factor) {
  const Slopes& expected = factor.expected;
  if (factor.ours.rounding > expected.tolerance()) return "dump gradients with more digits";
  if (expected.truncation > expected.rounding) return "take smaller steps, and the same random numbers in each call";
  return "evaluate the loss and its model in f64, or take larger steps, since rounding hides the differences";
}

class Judge {
 public:
  explicit Judge(const Dump& dump) : dump_(dump), all_(measured(dump)) {
    for (const MeasuredParameter& p : all_) steepest_ = std::max(steepest_, p.gradients[0].expected.along.norm());
    double coarsest = 0;
    for (const MeasuredParameter& p : all_)
      if (tells(p.gradients[0])) coarsest = std::max(coarsest, p.gradients[0].resolution());
    resolution_ = number("%.0e", std::pow(10, std::ceil(std::log10(coarsest))));
  }

  std::vector<Verdict> verdicts() const {
    std::vector<Verdict> result;
    for (const MeasuredParameter& p : all_) result.push_back(verdict(p));
    return result;
  }

 private:
  static bool tells(const Factor& factor) { return factor.resolution() <= max_resolution; }
  // Nothing depends on it: its slope is zero, compared with that of other parameters.
  bool flat(const Factor& factor) const {
    return factor.flat() && factor.is(1) && factor.tolerance(1) <= max_resolution * steepest_;
  }

  // The gradient of the rank whose is worst.
  static const Factor& worst_gradient(const MeasuredParameter& p) {
    return *std::ranges::max_element(p.gradients, {}, [](const Factor& f) { return f.distance(1) / f.tolerance(1); });
  }

  Verdict verdict(const MeasuredParameter& p) const {
    Verdict result;
    result.subject = "the slopes along '" + p.parameter->name + "'";
    const Factor& gradient = worst_gradient(p);
    if (p.loss) result.table.push_back(row(p.parameter->name + ": the losses", *p.loss));
    result.table.push_back(row(p.parameter->name + ": its gradient", gradient));
    const bool wrong_loss = p.loss && !p.loss->is(1), wrong_gradient = !p.agree || !gradient.is(1);
    if (wrong_loss) result.remarks.push_back("the slope of the losses" + in_words(*p.loss, dump_.ranks));
    if (!p.agree)
      result.remarks.push_back("the ranks have different gradients");
    else if (wrong_gradient)
      result.remarks.push_back("its gradient" + in_words(gradient, dump_.ranks));
    if (!wrong_loss && p.agree && wrong_gradient && detached_unknown()) {
      result.outcome = Outcome::cannot_tell;
      result.remarks.push_back(
          "autograd stops where values are detached, and differences do not: hold these values in the differences, or "
          "compare with one process");
    } else if (wrong_loss || wrong_gradient) {
      result.outcome = Outcome::wrong;
      const Causes causes = wrong_loss ? causes_of_losses(p) : causes_of_gradients(p);
      if (causes.empty() && (!wrong_loss || !p.agree)) add_hint(result, p);
      explain(result, causes);
    } else if (flat(gradient)) {
      result.remarks.push_back("nothing depends on it");
    } else if (!tells(gradient) || (p.loss && !tells(*p.loss))) {
      const Factor& worse = tells(gradient) ? *p.loss : gradient;
      result.outcome = Outcome::cannot_tell;
      result.remarks.push_back("the differences tell factors to " + number("%.0g", worse.resolution()) +
                               " only: " + what_to_dump(worse));
    } else {
      result.remarks.push_back("the differences tell factors to " + resolution_);
    }
    const Detached& detached = dump_.scale->detached;
    for (const std::string& place : detached.places)
      result.remarks.push_back("values are detached at " + place +
                               (detached.held ? ", and held in the differences" : ""));
    if (!p.loss) result.blind_to = {"S12 in the loss", "S13 in the loss", "S33 in the loss"};
    return result;
  }

  bool detached_unknown() const { return !dump_.scale->detached.places.empty() && !dump_.scale->detached.held; }

  Causes causes_of_gradients(const MeasuredParameter& p) const {
    Causes causes = causes_of_gradient(p, all_, dump_);
    return causes.empty() ? causes_of_terms(SlopesOf::gradients, p, all_, dump_) : causes;
  }
  Causes causes_of_losses(const MeasuredParameter& p) const {
    Causes causes = causes_of_loss(p, all_, dump_);
    return causes.empty() ? causes_of_terms(SlopesOf::losses, p, all_, dump_) : causes;
  }

  static Comparison row(const std::string& name, const Factor& factor) {
    return compared(name, factor.ours.along.transpose(), factor.expected.along.transpose(),
                    factor.tolerance(1) / limit);
  }

  // What makes gradients wrong where the losses are right.
  static void add_hint(Verdict& verdict, const MeasuredParameter& p) {
    verdict.remarks.push_back(std::string("likely ") + (p.agree ? likely_if_no_multiple : likely_if_ranks_differ));
    if (p.agree) verdict.remarks.push_back("to tell S1, S2, S6, S20 and S32 apart, dump the features of the loss");
  }

  static void explain(Verdict& verdict, const Causes& causes) {
    if (causes.empty()) return;
    verdict.best = causes[0];
    for (size_t i = 1; i < causes.size(); ++i)
      verdict.same_as_best.push_back(title(*causes[i].signature, causes[i].variant));
  }

  const Dump& dump_;
  const std::vector<MeasuredParameter> all_;
  double steepest_ = 0;
  std::string resolution_;
};

}  // namespace

std::vector<Verdict> scale_verdicts(const Dump& dump) { return Judge(dump).verdicts(); }

}  // namespace weft::verify
