// SPDX-License-Identifier: Apache-2.0
#include "tools/web/outcome.h"

#include <algorithm>
#include <cmath>

#include "tools/web/variants.h"
#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::web {
namespace {

std::vector<double> numbers(const Value& value) {
  if (const Number* number = std::get_if<Number>(&value)) return {number->value};
  return std::get<Var>(value).value().values();
}
std::vector<double> numbers(const Tensor& tensor) { return tensor.defined() ? tensor.values() : std::vector<double>(); }

// Along the leaves' directions. Each rank's leaf counts, and a parameter once: its ranks' gradients are terms, or,
// after they were summed, all the same.
double slope_of(const Evaluation& evaluation, const Program& program, Communicator& comm) {
  const bool summed = std::any_of(program.statements.begin(), program.statements.end(),
                                  [](const Statement& each) { return each.kind == Statement::Kind::sum_gradients; });
  double mine = 0;
  for (const Evaluation::Leaf& leaf : evaluation.leaves())
    if (leaf.gradient.defined())
      mine +=
          sum(Var(leaf.gradient) * Var(leaf.direction)).value().item() / (leaf.parameter && summed ? comm.size() : 1);
  return sum_over_ranks(mine, comm);
}

bool close(double a, double b, double scale) { return std::abs(a - b) <= 1e-9 * (scale + std::abs(a) + std::abs(b)); }
bool close(const std::vector<double>& a, const std::vector<double>& b) {
  double scale = 0;
  for (const double each : b) scale = std::max(scale, std::abs(each));
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](double x, double y) { return close(x, y, scale); });
}

std::vector<const NamedValues*> leaves(const Outcome& outcome) {
  std::vector<const NamedValues*> leaves;
  for (const NamedValues& named : outcome.names)
    if (named.leaf) leaves.push_back(&named);
  std::sort(leaves.begin(), leaves.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  return leaves;
}

bool equal_gradients(const NamedValues& a, const NamedValues& b) {
  return std::equal(a.gradients.begin(), a.gradients.end(), b.gradients.begin(),
                    [](const auto& g, const auto& h) { return close(g, h); });
}
bool equal_gradients(const Outcome& a, const Outcome& b) {
  const auto mine = leaves(a), others = leaves(b);
  return std::equal(mine.begin(), mine.end(), others.begin(), others.end(),
                    [](const auto* x, const auto* y) { return x->name == y->name && equal_gradients(*x, *y); });
}

constexpr uint64_t seeds[] = {1, 2};

using Outcomes = std::vector<Outcome>;  // of these seeds
Outcomes run_on_seeds(const Program& program, int ranks) {
  Outcomes outcomes;
  for (const uint64_t seed : seeds) outcomes.push_back(run(program, ranks, {seed}));
  return outcomes;
}
// The gradients of all leaves, or of one.
bool equal_gradients(const Outcomes& a, const Outcomes& b, std::optional<size_t> leaf = {}) {
  return std::equal(a.begin(), a.end(), b.begin(), [&](const Outcome& x, const Outcome& y) {
    return leaf ? equal_gradients(*leaves(x).at(*leaf), *leaves(y).at(*leaf)) : equal_gradients(x, y);
  });
}

// The variants of the right program that have the gradients of the other, or, if there are none, those of a leaf.
std::vector<std::string> names_of(const Outcomes& given, const Outcomes& wanted, const Program& right, int ranks) {
  std::vector<std::pair<std::string, Outcomes>> others;
  for (const Variant& variant : variants(right)) try {
      others.emplace_back(variant.name, run_on_seeds(variant.program, ranks));
    } catch (const Error&) {  // some cannot be run
    }
  std::vector<std::string> names;
  const auto find = [&](std::optional<size_t> leaf, const std::string& of) {
    if (equal_gradients(given, wanted, leaf)) return;
    for (const auto& [name, outcomes] : others)
      if (equal_gradients(outcomes, given, leaf) && !std::count(names.begin(), names.end(), name + of))
        names.push_back(name + of);
  };
  find({}, "");
  const bool unnamed = names.empty();
  const auto all = leaves(given[0]);
  for (size_t i = 0; i < all.size() && unnamed; ++i) find(i, ", for " + all[i]->name);
  return names;
}

// The one factor between two lists, if there is one.
std::optional<double> factor_between(const std::vector<double>& given, const std::vector<double>& wanted) {
  double products = 0, squares = 0;
  for (size_t i = 0; i < wanted.size(); ++i) products += given[i] * wanted[i], squares += wanted[i] * wanted[i];
  if (squares == 0) return {};
  std::vector<double> scaled = wanted;
  for (double& each : scaled) each *= products / squares;
  if (!close(given, scaled)) return {};
  return std::abs(products / squares) < 1e-12 ? 0 : products / squares;
}

std::string sentence(const std::string& of, const std::vector<double>& given, const std::vector<double>& wanted) {
  if (given.size() != wanted.size())
    return of + " has " + text(given.size()) + " numbers where " + text(wanted.size()) + " are right";
  const std::optional<double> factor = factor_between(given, wanted);
  if (!factor) return of + " is wrong, and not by a factor";
  return *factor == 0 ? of + " is zero" : of + " is " + text(*factor) + " of the right one";
}

// A leaf's gradients on a rank, of all outcomes, one after the other: a factor has to hold for all.
std::vector<double> gradients_on(const Outcomes& outcomes, size_t leaf, size_t rank) {
  std::vector<double> all;
  for (const Outcome& outcome : outcomes) {
    const std::vector<double>& mine = leaves(outcome).at(leaf)->gradients[rank];
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

// What is said of a leaf, on each rank that has it wrong, or once for all.
void describe(const Outcomes& given, const Outcomes& wanted, size_t leaf, std::vector<std::string>& says) {
  const std::string of = "the gradient of " + leaves(given[0])[leaf]->name;
  std::vector<std::string> of_ranks, with_ranks;
  const auto ranks = static_cast<size_t>(given[0].ranks);
  bool on_all = ranks > 1;
  for (size_t r = 0; r < ranks; ++r) {
    const std::vector<double> mine = gradients_on(given, leaf, r), right = gradients_on(wanted, leaf, r);
    if (mine.empty() && right.empty()) continue;
    on_all &= !close(mine, right);
    if (close(mine, right)) continue;
    of_ranks.push_back(sentence(of, mine, right));
    with_ranks.push_back(ranks == 1 ? of_ranks.back() : sentence(of + " on rank " + text(r), mine, right));
  }
  if (on_all && !of_ranks.empty() && std::count(of_ranks.begin(), of_ranks.end(), of_ranks[0]) == std::ssize(of_ranks))
    says.push_back(of_ranks[0] + ", on every rank");
  else
    says.insert(says.end(), with_ranks.begin(), with_ranks.end());
}

}  // namespace

Outcome run(const Program& program, int ranks, const Settings& settings) {
  Outcome outcome{ranks, {}, {}, {}, {}};
  for (const Statement& statement : program.statements)
    if (statement.kind == Statement::Kind::assign) {
      const std::vector<std::vector<double>> none(static_cast<size_t>(ranks));
      outcome.names.push_back({statement.name, statement.line, false, none, none, none});
    }
  run_ranks(ranks, [&](Communicator& comm) {
    Tape tape;
    const TapeLog log(tape);
    Evaluation evaluation(program, settings, tape, comm);
    evaluation.run();
    const double slope = slope_of(evaluation, program, comm);
    TapeTable table = table_of(TapeLog::notes(tape), comm);
    std::string printed = text(tape, comm);
    const auto me = static_cast<size_t>(comm.rank().value);
    for (size_t i = 0; i < outcome.names.size(); ++i) {
      const Evaluation::Named& named = evaluation.names()[i];
      outcome.names[i].values[me] = numbers(named.value);
      outcome.names[i].cotangents[me] = numbers(named.cotangent);
      for (const Evaluation::Leaf& leaf : evaluation.leaves())
        if (leaf.name == named.name) outcome.names[i].gradients[me] = numbers(leaf.gradient);
    }
    if (me != 0) return;
    for (const Evaluation::Leaf& leaf : evaluation.leaves())
      for (NamedValues& named : outcome.names) named.leaf |= named.name == leaf.name;
    outcome.lines_of_nodes = evaluation.lines_of_nodes();
    outcome.tapes = std::move(table);
    outcome.printed = std::move(printed);
    outcome.walked = evaluation.walked();
    outcome.objective = evaluation.objective();
    outcome.slope = slope;
  });
  return outcome;
}

std::optional<double> slope_by_differences(const Program& program, int ranks, uint64_t seed) {
  constexpr double step = 1e-5;
  const Outcome after = run(program, ranks, {seed, step}), before = run(program, ranks, {seed, -step});
  if (!after.walked) return {};
  return (after.objective - before.objective) / (2 * step);
}

Comparison compare(const Program& program, const Program& right, int ranks) {
  require(right.ranks == 0 || right.ranks == ranks, "this lesson is for ", right.ranks, " ranks, the program for ",
          ranks);
  const Outcome here = run(program, ranks), right_here = run(right, ranks);
  const auto mine = leaves(here), others = leaves(right_here);
  for (const NamedValues* leaf : others)
    require(std::any_of(mine.begin(), mine.end(), [&](const auto* each) { return each->name == leaf->name; }),
            "the leaf '", leaf->name, "' is missing");
  for (const NamedValues* leaf : mine)
    require(std::any_of(others.begin(), others.end(), [&](const auto* each) { return each->name == leaf->name; }),
            "there is no leaf '", leaf->name, "' in this lesson");
  require(here.walked, "nothing is differentiated: there is no loss, and no backward");

  const Outcomes given = run_on_seeds(program, ranks), wanted = run_on_seeds(right, ranks);
  Comparison comparison{equal_gradients(given, wanted) && equal_gradients(here, right_here),
                        equal_gradients(here, right_here),
                        close(here.objective, right_here.objective, 0),
                        {},
                        {}};
  if (comparison.equal) return comparison;
  if (!comparison.equal_objectives)
    comparison.says.push_back("the objective is " + text(here.objective) + " where " + text(right_here.objective) +
                              " is right");
  for (size_t i = 0; i < mine.size(); ++i) describe(given, wanted, i, comparison.says);
  comparison.names = names_of(given, wanted, right, ranks);
  return comparison;
}

}  // namespace weft::web
