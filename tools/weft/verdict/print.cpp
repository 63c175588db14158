// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/verdict/print.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace weft::verify {
namespace {

template <class... Values> std::string format(const char* how, Values... values) {
  char line[512];
  std::snprintf(line, sizeof line, how, values...);
  return line;
}

// "3.1x", or "exact".
std::string multiple(double error) {
  if (error == 0) return "exact";
  return error < 1000 ? format("%.1fx", error) : format("%.1ex", error);
}

std::string joined(const std::vector<std::string>& all) {
  std::string list;
  for (const std::string& each : all) list += (list.empty() ? "" : ", ") + each;
  return list;
}

std::string title(const Explained& e) {
  return e.signature->id + ": " + e.signature->name + (e.variant.empty() ? "" : " (" + e.variant + ")");
}

std::string explanation(double error) {
  if (error == 0) return "";  // known by other things than numbers
  return "\n    explains the dump to " + multiple(error) + " expected rounding";
}

std::string conclusion(const Verdict& verdict) {
  std::string text;
  switch (verdict.outcome) {
    case Outcome::cannot_tell: text = "cannot tell"; break;
    case Outcome::correct: text = "correct"; break;
    case Outcome::wrong:
      if (verdict.described)
        text = "wrong: " + verdict.described->text + "\n    repair: " + verdict.described->repair +
               explanation(verdict.described->error);
      else if (!verdict.best)
        text = "wrong, unknown cause";
      if (!verdict.best) break;
      text = "wrong: signature " + title(*verdict.best) + "\n    effect: " + verdict.best->signature->effect +
             "\n    repair: " + verdict.best->signature->repair;
      text += explanation(verdict.best->error);
      if (!verdict.same_as_best.empty()) text += "\n    here the same numbers as " + joined(verdict.same_as_best);
  }
  if (verdict.runner_up)
    text += "\n    next: " + title(*verdict.runner_up) + ", off by " + multiple(verdict.runner_up->error) +
            " expected rounding";
  for (const std::string& remark : verdict.remarks) text += "\n    " + remark;
  return text;
}

std::string description(const Verdict& verdict) { return verdict.described ? verdict.described->text : ""; }

std::string blind_to(const Verdict& verdict) {
  if (verdict.blind_to.empty()) return "";
  return "    blind to " + joined(verdict.blind_to) + ": with these data they give the same numbers as the truth\n";
}

// The worst of all of a group.
std::string resolution(const std::vector<const Verdict*>& group) {
  std::optional<Resolution> worst;
  for (const Verdict* verdict : group)
    if (verdict->resolution) {
      if (!worst) worst.emplace();
      worst->worsen(*verdict->resolution);
    }
  if (!worst) return "";
  const auto percent = [](double x) { return format("%.2g %%", 100 * x); };
  return "    shows a factor that is off by " + percent(worst->factor) +
         (worst->row < 1 ? ", and any row that is off by " + percent(worst->row) : ", and not every row") + "\n";
}

// Verdicts that say the same of different subjects, such as hundreds of parameters, are told together.
using Group = std::vector<const Verdict*>;
std::vector<Group> groups_of(const std::vector<Verdict>& verdicts) {
  std::vector<Group> groups;
  for (const Verdict& verdict : verdicts) {
    const auto alike = std::ranges::find_if(groups, [&](const Group& group) {
      const Verdict& first = *group.front();
      return first.outcome == verdict.outcome && first.best.has_value() == verdict.best.has_value() &&
             (!verdict.best || title(*first.best) == title(*verdict.best)) && first.remarks == verdict.remarks &&
             description(first) == description(verdict) &&
             (verdict.outcome == Outcome::wrong || first.blind_to == verdict.blind_to) &&
             first.table.size() == verdict.table.size();
    });
    if (alike == groups.end())
      groups.push_back({&verdict});
    else
      alike->push_back(&verdict);
  }
  return groups;
}

std::string text_of(const Group& group) {
  constexpr size_t max_names = 4;
  const Verdict& first = *group.front();
  std::string subject = first.subject;
  for (size_t i = 1; i < std::min(group.size(), max_names); ++i) subject += ", " + group[i]->subject;
  if (group.size() > max_names) subject += " and " + std::to_string(group.size() - max_names) + " more";
  // The subject that is worst stands for all of them.
  const auto error = [](const Verdict* verdict) {
    double worst = 0;
    for (const Comparison& row : verdict->table) worst = std::max(worst, row.error);
    return worst;
  };
  const Verdict& worst = *std::ranges::max(group, {}, error);
  return subject + ": " + conclusion(first) + "\n" + resolution(group) + blind_to(first) + table_of(worst.table);
}

nlohmann::ordered_json json_of(const Explained& e) {
  return {{"signature", e.signature->id},
          {"name", e.signature->name},
          {"variant", e.variant},
          {"error", e.error},
          {"repair", e.signature->repair}};
}
nlohmann::ordered_json json_of(const Described& e) {
  return {{"signature", ""}, {"name", e.text}, {"variant", ""}, {"error", e.error}, {"repair", e.repair}};
}

}  // namespace

std::string table_of(const std::vector<Comparison>& rows) {
  size_t width = 6;
  for (const Comparison& row : rows) width = std::max(width, row.tensor.size());
  const bool of_step = !rows.empty() && rows[0].shown;
  std::string text = format("  %-*s %10s %10s %10s %10s%s   worst element\n", static_cast<int>(width), "tensor",
                            "elements", "error", "cosine", "ratio", of_step ? "   shows a factor off by" : "");
  for (const Comparison& row : rows) {
    text += format("  %-*s %10lld %10s %10.7f %10.7f", static_cast<int>(width), row.tensor.c_str(),
                   static_cast<long long>(row.elements), multiple(row.error).c_str(), row.cosine, row.ratio);
    if (row.shown) text += format(" %21.2g %%", 100 * *row.shown);
    if (row.error > 0)
      text += format("   [%lld] %.7g, not %.7g", static_cast<long long>(row.worst_element), row.dumped, row.expected);
    text += "\n";
  }
  return text;
}

nlohmann::ordered_json json_row(const Comparison& row) {
  nlohmann::ordered_json json = {
      {"tensor", row.tensor}, {"elements", row.elements},           {"error", row.error},   {"cosine", row.cosine},
      {"ratio", row.ratio},   {"worst_element", row.worst_element}, {"dumped", row.dumped}, {"expected", row.expected}};
  if (row.shown) json["shown"] = *row.shown;
  return json;
}

const char* name(Outcome outcome) {
  switch (outcome) {
    case Outcome::correct: return "correct";
    case Outcome::wrong: return "wrong";
    default: return "cannot tell";
  }
}

std::string text_of(const std::vector<Verdict>& verdicts, const Dump& dump) {
  const std::string against =
      dump.step ? "against one process with the whole batch"
                : std::string("the reducer takes the ") + (dump.reducer == Reducer::mean ? "mean" : "sum");
  std::string text = std::to_string(dump.ranks) + " ranks" + (dump.mesh ? " (" + dump.mesh->text() + ")" : "") + ", " +
                     against + "; errors are multiples of expected rounding, up to " + format("%g", limit) +
                     " count as equal\n";
  for (const auto& group : groups_of(verdicts)) text += "\n" + text_of(group);
  if (verdicts.empty())
    text += "nothing was compared: the dump has no features of a loss, no layer, and no gradients of a parameter\n";
  return text + "\nverdict: " + name(overall(verdicts)) + "\n";
}

std::string power_of(const std::vector<Verdict>& verdicts, const Dump& dump) {
  std::string text;
  for (const Verdict& verdict : verdicts) {
    text += verdict.subject + (verdict.blind_to.empty() ? ": every signature would show\n" : ":\n" + blind_to(verdict));
  }
  if (dump.ranks == 2)
    text += "with two ranks a ratio of 1/2 can be an additional 1/W or a lost half: dump three ranks\n";
  if (dump.ranks == 1) text += "one rank cannot show any mistake between ranks: dump three\n";
  if (dump.micro_batches > 1 && dump.micro_batches == dump.ranks)
    text += "as many micro-batches as ranks: factors of one cannot be told from those of the other\n";
  return text;
}

std::string json_of(const std::vector<Verdict>& verdicts, const Dump& dump) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    nlohmann::ordered_json table = nlohmann::ordered_json::array();
    for (const Comparison& row : verdict.table) table.push_back(json_row(row));
    nlohmann::ordered_json one = {{"subject", verdict.subject}, {"outcome", name(verdict.outcome)}};
    if (verdict.best) one["best"] = json_of(*verdict.best);
    if (verdict.described) one["best"] = json_of(*verdict.described);
    if (verdict.runner_up) one["next"] = json_of(*verdict.runner_up);
    if (verdict.resolution)
      one["resolution"] = {{"factor", verdict.resolution->factor}, {"row", verdict.resolution->row}};
    one["same_as_best"] = verdict.same_as_best;
    one["blind_to"] = verdict.blind_to;
    one["remarks"] = verdict.remarks;
    one["table"] = table;
    all.push_back(one);
  }
  const nlohmann::ordered_json result = {
      {"ranks", dump.ranks}, {"outcome", name(overall(verdicts))}, {"verdicts", all}};
  return result.dump(2) + "\n";
}

}  // namespace weft::verify
