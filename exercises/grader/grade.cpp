// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/grade.h"

#include <algorithm>
#include <iostream>
#include <numeric>
#include <set>

#include "exercises/functions.h"
#include "exercises/grader/pattern.h"

namespace weft::grader {
namespace {

using Indices = std::vector<size_t>;

Indices common(const Indices& a, const Indices& b) {
  Indices both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both;
}

class Grading {
 public:
  explicit Grading(const Lesson& lesson)
      : lesson_(lesson), given_(trials(lesson.learner)), right_(trials(lesson.right)), wrong_(wrong()) {}

  Grade grade() const {
    const std::string text = "exercise " + std::to_string(lesson_.number) + ": " + lesson_.title + "\n" + table();
    const std::string complaints = error() + findings();
    if (complaints.empty()) return {Grade::right, text + "Right.\n"};
    return {Grade::wrong, text + complaints};
  }

 private:
  std::vector<Trial> trials(const Measure& answer) const { return tried(answer, lesson_.quantities.size()); }
  bool ran(size_t d) const { return given_[d].error.empty(); }
  bool is_wrong(size_t q, size_t d) const { return ran(d) && !equal(right_[d].quantities[q], given_[d].quantities[q]); }

  Indices wrong() const {
    Indices wrong;
    for (size_t q = 0; q < lesson_.quantities.size(); ++q)
      for (size_t d = 0; d < given_.size(); ++d)
        if (is_wrong(q, d)) {
          wrong.push_back(q);
          break;
        }
    return wrong;
  }

  std::string table() const {
    constexpr size_t first_column = 28;
    std::string table = "shards";
    table.resize(first_column, ' ');
    for (const Quantity& quantity : lesson_.quantities) table += "  " + quantity.name;
    for (size_t d = 0; d < given_.size(); ++d) {
      std::string row = text(divisions()[d]);
      row.resize(first_column, ' ');
      for (size_t q = 0; q < lesson_.quantities.size(); ++q) {
        std::string cell = !ran(d) ? "error" : is_wrong(q, d) ? "wrong" : "right";
        cell.resize(lesson_.quantities[q].name.size(), ' ');
        row += "  " + cell;
      }
      table += "\n" + row.substr(0, row.find_last_not_of(' ') + 1);
    }
    return table + "\n";
  }

  // What it ends with on the first division on which it does.
  std::string error() const {
    for (size_t d = 0; d < given_.size(); ++d)
      if (!ran(d)) return "On " + grader::text(divisions()[d]) + " it ends with an error:\n  " + given_[d].error + "\n";
    return {};
  }

  // The quantities that are as with this mistake for all divisions; none if one of these is not.
  Indices explained(const Answer& mistake, const Indices& before) const {
    Indices alike(lesson_.quantities.size());
    std::iota(alike.begin(), alike.end(), 0);
    for (size_t d = 0; d < given_.size() && !alike.empty(); ++d) {
      if (!ran(d)) continue;
      const Trial mistaken = tried(mistake.measure, lesson_.quantities.size(), divisions()[d]);
      std::erase_if(alike, [&](size_t q) { return !equal(mistaken.quantities[q], given_[d].quantities[q]); });
      if (common(alike, before) != before) return {};
    }
    return alike;
  }

  // A derivative follows from those of lower orders, so only the lowest order that is wrong is named: each quantity by
  // the mistake with which most are as they are, or by what else can be said.
  std::string findings() const {
    if (wrong_.empty()) return {};
    const auto order = [&](size_t q) { return lesson_.quantities[q].derivative; };
    const int lowest = order(std::ranges::min(wrong_, {}, order));
    Indices before, left, others;  // of lower orders, all of which are right; of this one; and of higher ones
    for (size_t q = 0; q < lesson_.quantities.size(); ++q)
      if (order(q) < lowest) before.push_back(q);
    for (const size_t q : wrong_) (order(q) == lowest ? left : others).push_back(q);
    std::vector<Indices> all;
    for (const Answer& mistake : lesson_.mistakes) all.push_back(explained(mistake, before));

    std::string text;
    const auto merit = [&](const Indices& alike) { return common(alike, left).empty() ? 0 : alike.size(); };
    while (!left.empty()) {
      const auto best = std::ranges::max_element(all, {}, merit);
      if (best == all.end() || merit(*best) == 0) break;
      const Answer& mistake = lesson_.mistakes[static_cast<size_t>(best - all.begin())];
      Indices these = common(*best, left);
      std::ranges::copy(common(*best, others), std::back_inserter(these));
      text += finding(these, {mistake.signature, mistake.what});
      for (Indices* const indices : {&left, &others})
        std::erase_if(*indices, [&](size_t q) { return std::ranges::count(these, q) > 0; });
    }
    for (const size_t q : left) text += finding({q}, pattern_of(compared(q)));
    return text + (others.empty() ? "" : "wrong, too: " + names(others) + "\n");
  }

  Compared compared(size_t q) const {
    Compared compared;
    for (size_t d = 0; d < given_.size(); ++d) {
      if (!ran(d)) continue;
      compared.divisions.push_back(divisions()[d]);
      compared.right.push_back(right_[d].quantities[q]);
      compared.given.push_back(given_[d].quantities[q]);
    }
    return compared;
  }

  std::string names(const Indices& quantities) const {
    std::string names;
    for (const size_t q : quantities) names += (q == quantities[0] ? "" : ", ") + lesson_.quantities[q].name;
    return names;
  }

  std::string finding(const Indices& quantities, const Pattern& pattern) const {
    std::string text = "wrong: " + names(quantities) + "\n";
    const std::string signature = pattern.signature.empty() ? "" : pattern.signature + ": ";
    text += "  " + signature + (pattern.what.empty() ? "This is none of the usual mistakes." : pattern.what) + "\n";
    text += "  It shows " + where(quantities[0]) + ".\n";
    for (size_t d = 0; d < given_.size(); ++d)
      if (is_wrong(quantities[0], d))
        return text + "  On " + grader::text(divisions()[d]) + ", " +
               difference(right_[d].quantities[quantities[0]], given_[d].quantities[quantities[0]]) + "\n";
    return text;
  }

  // On which numbers of ranks a quantity is wrong.
  std::string where(size_t q) const {
    std::set<size_t> ranks;
    bool even = false;
    for (size_t d = 0; d < given_.size(); ++d) {
      if (!is_wrong(q, d)) continue;
      const Rows& samples = divisions()[d];
      ranks.insert(samples.size());
      even |= std::ranges::count(samples, samples[0]) == std::ssize(samples);
    }
    std::string text = "on";
    for (const size_t n : ranks)
      text += (n == *ranks.begin() ? " " : n == *ranks.rbegin() ? " and " : ", ") + std::to_string(n);
    return text + (ranks == std::set<size_t>{1} ? " rank" : " ranks") + (even ? "" : ", and only if shards are uneven");
  }

  const Lesson& lesson_;
  const std::vector<Trial> given_, right_;
  const Indices wrong_;
};

}  // namespace

Grade grade(const Lesson& lesson) {
  try {
    return Grading(lesson).grade();
  } catch (const exercises::NotWritten& untouched) {
    return {Grade::not_written, untouched.what() + std::string("\n")};
  }
}

int report(const Lesson& lesson) {
  const Grade given = grade(lesson);
  std::cout << given.text;
  return given.outcome;
}

}  // namespace weft::grader
