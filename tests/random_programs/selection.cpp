// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/selection.h"

#include <algorithm>

#include "weft/collectives/fault.h"

namespace weft::random_programs {

std::string why_refused(const std::function<void()>& body) try {
  body();
  return "";
} catch (const Fault&) {
  throw;
} catch (const std::exception& error) {
  return error.what();
}

namespace {

// What errors advise, and the kind of step that follows it.
constexpr std::pair<const char*, const char*> advice[] = {{"with all_reduce", "all_reduce"},
                                                          {"complete a Partial sum", "all_reduce"},
                                                          {"vary()", "vary"},
                                                          {"keep_on", "keep_on"},
                                                          {"as_partial", "as_partial"},
                                                          {"tape.constant(x)", "as_varying"}};

// The input that an error is about, from 0; "input 2" is the second.
size_t offending_input(const std::string& reason, size_t count) {
  const size_t at = reason.find("input ");
  if (at == std::string::npos || at + 6 >= reason.size()) return 0;
  const int number = reason[at + 6] - '1';
  return number >= 0 && static_cast<size_t>(number) < count ? static_cast<size_t>(number) : 0;
}

bool has_leaf(const Program& program) {
  return std::any_of(program.steps.begin(), program.steps.end(),
                     [](const Step& step) { return step_kinds()[static_cast<size_t>(step.kind)].is_differentiated(); });
}

}  // namespace

Program Selection::select() {
  Execution execution(program_, scene_);
  select_steps(execution);
  if (!program_.terms.empty()) select_terms(execution);
  program_ = without_unused(program_);
  if (!has_leaf(program_)) program_.terms.clear();
  return program_;
}

void Selection::select_steps(Execution& execution) {
  while (!program_.terms.empty()) try {
      return execution.run();
    } catch (const Refusal& refusal) {
      Program begin = execution.program();
      begin.steps.resize(static_cast<size_t>(refusal.step) + 1);
      begin.terms = {{refusal.step, Weights::own}};
      refusals_.steps.push_back(begin.steps.back().dice);
      note(refusal.what(), std::move(begin));
      program_ = with_advice(execution.program(), refusal);
      execution.replace(program_);
    }
}

// Follows the advice of an error, if it has not been followed for this step already. Otherwise the step goes.
Program Selection::with_advice(const Program& program, const Refusal& refusal) const {
  const Step& step = program.steps[static_cast<size_t>(refusal.step)];
  const std::string reason = refusal.what();
  const auto given = std::find_if(std::begin(advice), std::end(advice),
                                  [&](auto& pair) { return reason.find(pair.first) != std::string::npos; });
  const Feature feature = step_kinds()[static_cast<size_t>(step.kind)].feature;
  const bool follows =
      (step.dice & follows_advice) != 0 && feature != Feature::conversion && feature != Feature::collective;
  if (given == std::end(advice) || !follows || step.inputs.empty()) return without(program, refusal.step);
  Program changed = program;
  Step& other = changed.steps[static_cast<size_t>(refusal.step)];
  other.inputs = {other.inputs[offending_input(reason, other.inputs.size())]};
  other.kind = kind_named(given->second);
  other.halves = false;
  const int misfit = lay_out(changed).misfit;
  return misfit >= 0 && misfit <= refusal.step ? without(program, refusal.step) : fitting(std::move(changed));
}

// A term that cannot be added in one way may be added in another.
void Selection::select_terms(Execution& execution) {
  std::vector<Term> kept;
  Var loss;
  for (const Term& term : program_.terms)
    for (const Weights weights : {term.weights, Weights::equal, Weights::own, Weights::summed}) {
      Var sum;
      const std::string refused = why_refused([&] {
        const Var more = execution.term({term.value, weights});
        sum = loss.defined() ? loss + more : more;
      });
      if (!refused.empty()) {
        note(refused, program_);
        continue;
      }
      kept.push_back({term.value, weights});
      loss = sum;
      break;
    }
  program_.terms = kept;
  if (kept.empty() || has_gradient(execution, loss)) return;
  for (const Weights weights : {Weights::own, Weights::summed}) {
    for (Term& term : program_.terms) term.weights = weights;
    const auto all = [&] {
      loss = execution.term(program_.terms[0]);
      for (size_t i = 1; i < program_.terms.size(); ++i) loss = loss + execution.term(program_.terms[i]);
    };
    if (why_refused(all).empty() && has_gradient(execution, loss)) return;
  }
}

bool Selection::has_gradient(Execution& execution, const Var& loss) {
  const std::string refused = why_refused([&] { execution.tape().gradient(loss, execution.leaf_values()); });
  if (!refused.empty()) note(refused, program_);
  return refused.empty();
}

void Selection::note(const std::string& reason, Program up_to) {
  refusals_.reasons.push_back(reason);
  refused_.push_back({reason, std::move(up_to)});
}

std::optional<Program> Selection::up_to_refusal(const std::function<bool(const std::string&)>& is_wrong) const {
  for (const Refused& refused : refused_)
    if (is_wrong(refused.reason)) return refused.up_to;
  return {};
}

}  // namespace weft::random_programs
