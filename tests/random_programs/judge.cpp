// SPDX-License-Identifier: Apache-2.0
// What must hold for every program that Weft accepts, from the reports of its ranks.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/random_programs/trial.h"

namespace weft::random_programs {

bool Rules::is_wrong_refusal(const std::string& reason) const {
  const auto says = [&](const std::string& part) { return reason.find(part) != std::string::npos; };
  return std::any_of(wrong_refusals.begin(), wrong_refusals.end(), says) &&
         std::none_of(known.begin(), known.end(), says);
}

namespace {

Finding wrong(std::string what, std::string details) { return {Verdict::wrong, std::move(what), std::move(details)}; }

// The derivative of a sum over ranks, by differences of two widths and a test for kinks.
struct Differences {
  double slope, error, kink;
};
Differences differences(const Trial& trial, const std::function<const Slope&(const Report&)>& of, bool weighted,
                        double scale) {
  const double step = trial.step;
  double f[5] = {};
  for (const Report& report : trial.reports)
    for (size_t i = 0; i < 5; ++i) f[i] += of(report).values[i] * (weighted ? report.weight : 1);
  const double narrow = (f[2] - f[1]) / (2 * step), wide = (f[3] - f[0]) / (4 * step);
  const double rounding = 1e-15 * std::abs(f[4]) * static_cast<double>(trial.program.steps.size()) / step;
  const double bend = (f[2] - 2 * f[4] + f[1]) / step, wide_bend = (f[3] - 2 * f[4] + f[0]) / (2 * step);
  const double error = 1e-7 * scale + 4 * (narrow - wide) * (narrow - wide) / std::max(scale, 1e-6) + rounding;
  return {(4 * narrow - wide) / 3, error, std::abs(2 * bend - wide_bend)};
}

Finding judge_slope(const Trial& trial, const std::string& name, const std::function<const Slope&(const Report&)>& of,
                    bool weighted) {
  double by_tape = 0, scale = 1e-3;
  for (const Report& report : trial.reports) {
    if (of(report).values.size() != 5) return {};
    by_tape += of(report).by_tape;
    scale += of(report).scale;
  }
  const Differences by_differences = differences(trial, of, weighted, scale);
  const double off = std::abs(by_tape - by_differences.slope);
  const std::string details = "differences give " + text(by_differences.slope) + ", the tape " + text(by_tape) +
                              ", error " + text(by_differences.error) + ", kink " + text(by_differences.kink) +
                              ", scale " + text(scale);
  if (off <= by_differences.error) return {};
  if (by_differences.kink > by_differences.error || by_differences.error > 1e-3 * scale)
    return {Verdict::unclear, name, details};
  return wrong(name, details);
}

Finding judge_queries(const Trial& trial, const Rules& rules) {
  for (const Report& report : trial.reports) {
    for (const std::string& reason : rules.known)
      if (report.asked.find(reason) != std::string::npos) return {Verdict::refused, "known: " + reason, report.asked};
    if (!report.asked.empty()) return wrong("a query makes Weft refuse", report.asked);
    if (report.loss != report.loss_with_queries) return wrong("a query changes the loss", "");
    if (report.gradients != report.gradients_with_queries) return wrong("a query changes a gradient", "");
    if (!report.must_refuse.empty()) return wrong("should be refused: " + report.must_refuse[0], "");
  }
  return {};
}

Finding judge_backward(const Trial& trial) {
  for (const Report& report : trial.reports)
    for (size_t i = 0; i < report.gradients_of_backward.size(); ++i) {
      const auto &a = report.gradients_of_backward[i], &b = report.gradients[i];
      for (size_t k = 0; k < a.size(); ++k)
        if (std::abs(a[k] - b[k]) > 1e-11 * (1 + std::abs(b[k])))
          return wrong("backward and gradient differ", text(a[k]) + " and " + text(b[k]));
    }
  return {};
}

bool equal(const Claim& a, const Claim& b) {
  if (a.shape != b.shape) return false;
  for (size_t i = 0; i < a.values.size(); ++i)
    if (!(std::abs(a.values[i] - b.values[i]) <= 1e-9 * (1 + std::abs(a.values[i])))) return false;
  return true;
}

Finding judge_claims(const Trial& trial) {
  for (size_t r = 0; r < trial.reports.size(); ++r)
    for (const Claim& mine : trial.reports[r].claims)
      for (const int other : trial.program.partitions[static_cast<size_t>(mine.partition)].members(static_cast<int>(r)))
        for (const Claim& its : trial.reports[static_cast<size_t>(other)].claims)
          if (its.of == mine.of && its.partition == mine.partition && !equal(mine, its))
            return wrong(mine.of.starts_with("the gradient") ? "a false claim of a gradient" : "a false claim",
                         mine.of + " claims to be " + text(mine.placement) + " over " +
                             trial.program.partitions[static_cast<size_t>(mine.partition)].name + ", ranks " +
                             text(static_cast<int>(r)) + " and " + text(other) + " differ");
  return {};
}

// The dense matrix of a custom collective, times what its ranks gave.
std::vector<double> expected(const Trial& trial, int rank, size_t exchange) {
  const Step& step = trial.program.steps[static_cast<size_t>(trial.reports[0].exchanges[exchange].step)];
  const Partition& partition = trial.program.partition(step);
  const std::vector<int> members = partition.members(rank);
  const int me = partition.position(rank);
  const auto given = [&](int source) -> const std::vector<double>& {
    return trial.reports[static_cast<size_t>(members[static_cast<size_t>(source)])].exchanges[exchange].given;
  };
  const auto n = static_cast<int>(members.size());
  Rows rows;
  for (int s = 0; s < n; ++s) rows.push_back(static_cast<int64_t>(given(s).size()) / columns);
  std::vector<double> result;
  const auto add = [&](const Portion& portion, int source) {
    result.resize(std::max(result.size(), static_cast<size_t>((portion.to + portion.count) * columns)));
    for (int64_t i = 0; i < portion.count * columns; ++i)
      result[static_cast<size_t>(portion.to * columns + i)] +=
          given(source)[static_cast<size_t>(portion.from * columns + i)];
  };
  const bool by_rows = step_kinds()[static_cast<size_t>(step.kind)].name == "random portions";
  if (!by_rows) result.resize(given(0).size());
  const RandomPortions portions = RandomPortions::draw(rows, step.dice);
  for (int s = 0; s < n; ++s) {
    const Portion portion = by_rows ? portions.portion(me, s) : RandomReads{n, step.dice}.portion(me, s);
    const int64_t unit = by_rows ? 1 : rows[static_cast<size_t>(s)];
    if (portion.count > 0) add({portion.from * unit, portion.count * unit, portion.to * unit}, s);
  }
  return result;
}

Finding judge_exchanges(const Trial& trial) {
  for (size_t r = 0; r < trial.reports.size(); ++r)
    for (size_t e = 0; e < trial.reports[r].exchanges.size(); ++e) {
      const std::vector<double>& made = trial.reports[r].exchanges[e].made;
      const std::vector<double> right = expected(trial, static_cast<int>(r), e);
      bool ok = made.size() == right.size();
      for (size_t i = 0; ok && i < made.size(); ++i)
        ok = std::abs(made[i] - right[i]) <= 1e-12 * (1 + std::abs(right[i]));
      if (!ok)
        return wrong("a custom collective has a wrong value",
                     "v" + text(trial.reports[r].exchanges[e].step) + " on rank " + text(static_cast<int>(r)));
    }
  return {};
}

// The refusals of a rank: first those of what was left out, with what was left out.
std::vector<std::string> refusals(const Report& report) {
  std::vector<std::string> all;
  for (size_t i = 0; i < report.dropped.reasons.size(); ++i)
    all.push_back((i < report.dropped.steps.size() ? "step " + text(report.dropped.steps[i]) + ": " : "") +
                  without_numbers(report.dropped.reasons[i]));
  for (const std::string& reason : {report.refused, report.asked, report.second_refused})
    if (!reason.empty()) all.push_back(without_numbers(reason));
  return all;
}

// The first refusal of one rank that another one did not make; nothing if there is none.
std::string refused_alone(const Trial& trial) {
  const std::vector<std::string> first = refusals(trial.reports[0]);
  for (const Report& report : trial.reports) {
    const std::vector<std::string> others = refusals(report);
    for (size_t i = 0; i < std::max(first.size(), others.size()); ++i) {
      if (i >= first.size()) return others[i];
      if (i >= others.size() || first[i] != others[i]) return first[i];
    }
  }
  return "";
}

Finding judge_refusal(const Trial& trial, const Rules& rules) {
  for (const Report& report : trial.reports) {
    if (rules.is_wrong_refusal(report.refused))
      return wrong("refused: " + without_numbers(report.refused), report.refused);
    if (rules.is_wrong_refusal(report.second_refused))
      return wrong("refused: " + without_numbers(report.second_refused), report.second_refused);
  }
  const std::string alone = refused_alone(trial);
  if (!alone.empty()) return {Verdict::refused, "on some ranks only: " + without_numbers(alone), alone};
  if (!trial.failure.empty()) return wrong("failed: " + without_numbers(trial.failure), trial.failure);
  if (trial.program.terms.empty()) return {Verdict::refused, "nothing is left", ""};
  const std::string& reason = trial.reports[0].refused;
  return reason.empty() ? Finding() : Finding{Verdict::refused, without_numbers(reason), reason};
}

}  // namespace

Finding judge(const Trial& trial, const Rules& rules) {
  if (trial.up_to_wrong_refusal) {
    const auto& dropped = trial.reports[0].dropped.reasons;
    const auto reason =
        std::find_if(dropped.begin(), dropped.end(), [&](auto& why) { return rules.is_wrong_refusal(why); });
    return wrong("refused: " + without_numbers(*reason), *reason);
  }
  const auto first = [](const Report& report) -> const Slope& { return report.first; };
  const auto second = [](const Report& report) -> const Slope& { return report.second; };
  const std::function<Finding()> checks[] = {
      [&] { return judge_refusal(trial, rules); },
      [&] { return judge_queries(trial, rules); },
      [&] { return judge_exchanges(trial); },
      [&] { return judge_claims(trial); },
      [&] { return judge_backward(trial); },
      [&] { return judge_slope(trial, "a wrong gradient", first, true); },
      [&] { return judge_slope(trial, "a wrong second derivative", second, false); }};
  for (const auto& check : checks) {
    const Finding finding = check();
    if (finding.verdict != Verdict::right) return finding;
  }
  return {};
}

Result tried(const Program& program, Rules rules) {
  Trial trial = try_program(program, rules);
  Finding finding = judge(trial, rules);
  for (rules.drops = false; finding.verdict == Verdict::unclear && rules.step > 1e-5;) {
    rules.step /= 20;
    trial = try_program(trial.program, rules);
    finding = judge(trial, rules);
  }
  return {std::move(trial), std::move(finding)};
}

}  // namespace weft::random_programs
