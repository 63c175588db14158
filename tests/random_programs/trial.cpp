// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/trial.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tests/random_programs/values.h"
#include "weft/collectives/fault.h"
#include "weft/collectives/group_placement.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

namespace {

constexpr uint64_t projections = uint64_t{3} << 32;  // added to keys

double dot(const Tensor& a, const Tensor& b, double* magnitude = nullptr) {
  const std::vector<double> x = a.values(), y = b.values();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * y[i];
    if (magnitude) *magnitude += std::abs(x[i] * y[i]);
  }
  return sum;
}

std::vector<std::vector<double>> values_of(const std::vector<Var>& vars) {
  std::vector<std::vector<double>> values;
  for (const Var& v : vars) values.push_back(v.value().values());
  return values;
}

// All runs of one program on one rank.
class RankTrial {
 public:
  RankTrial(Trial& trial, const Program& program, const Rules& rules, Communicator& world, bool drops)
      : trial_(trial),
        program_(program),
        rules_(rules),
        scene_(program_, world),
        drops_(drops),
        report_(trial.reports[static_cast<size_t>(world.rank().value)]) {}

  void run() {
    report_.refused = reason([&] { select(); });
    if (is_first()) trial_.program = program_;
    if (!report_.refused.empty() || program_.terms.empty()) return;
    report_.refused = reason([&] { run_plainly(); });
    if (!report_.refused.empty()) return;
    if (!(report_.asked = reason([&] { run_with_queries(); })).empty()) return;
    if (second_) report_.second_refused = reason([&] { run_second_order(); });
    second_ = second_ && report_.second_refused.empty();
    for (const double distance : distances) run_moved(distance);
  }

 private:
  // Why Weft refuses what `body` does, or nothing.
  template <class Body> static std::string reason(Body body) try {
    body();
    return "";
  } catch (const Fault&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }

  // Leaves out what Weft refuses: steps, terms of the loss, and losses whose ranks all hold something else.
  void select() {
    Execution execution(program_, scene_);
    for (bool done = false; !done;) try {
        execution.run();
        done = true;
      } catch (const Refusal& refusal) {
        if (!drops_) throw;
        drop(refusal.what());
        if (is_first() && rules_.is_wrong_refusal(refusal.what()))
          trial_.up_to_wrong_refusal = begin_of(execution, refusal.step);
        program_ = without(execution.program(), refusal.step);
        execution.replace(program_);
        if (program_.terms.empty()) return;
      }
    if (!drops_) return;
    select_terms(execution);
    program_ = without_unused(program_);
    const bool has_leaf = std::any_of(program_.steps.begin(), program_.steps.end(), [](const Step& step) {
      return step_kinds()[static_cast<size_t>(step.kind)].is_leaf();
    });
    if (!has_leaf) program_.terms.clear();
  }

  void select_terms(Execution& execution) {
    std::vector<Term> kept;
    Var loss;
    for (size_t i = 0; i < program_.terms.size(); ++i) {
      const std::string refused = reason([&] {
        const Var more = execution.term(i);
        loss = loss.defined() ? loss + more : more;
      });
      if (refused.empty())
        kept.push_back(program_.terms[i]);
      else
        drop(refused);
    }
    program_.terms = kept;
    if (kept.empty()) return;
    const std::string refused = reason([&] { execution.tape().gradient(loss, execution.leaf_values()); });
    if (refused.empty()) return;
    drop(refused);
    for (Term& term : program_.terms) term.own_weights = true;
  }

  void run_plainly() {
    Execution execution(program_, scene_);
    execution.run();
    const Var loss = execution.loss();
    const std::vector<Var> gradients = execution.tape().gradient(loss, execution.leaf_values());
    report_.loss = loss.value().item();
    report_.gradients = values_of(gradients);
    for (size_t i = 0; i < gradients.size(); ++i)
      report_.first.by_tape += dot(gradients[i].value(), direction(execution, i), &report_.first.scale);
    Gradients into;
    execution.tape().backward(loss, into);
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Tensor sum = execution.gradient_of_leaf(into, i);
      report_.gradients_of_backward.push_back(sum.defined() ? sum.values() : std::vector<double>());
    }
  }

  void run_with_queries() {
    Dice dice(program_.seed + 99);
    std::vector<std::pair<size_t, Var>> values;  // those in checkpoints, too
    const auto ask = [&](size_t step, const Var& x) {
      values.emplace_back(step, x);
      if (dice.chance(0.5)) placement_of(x, scene_.group(dice.below(scene_.partitions())));
    };
    Execution execution(program_, scene_, 0, ask);
    execution.run();
    const Var loss = execution.loss();
    report_.weight = weight_of(loss, execution);
    for (const auto& [step, value] : values) claim(value, name_of(step));
    for (size_t step = 0; step < program_.steps.size(); ++step) note_exchange(execution, step);
    check_refusals(execution);
    const std::vector<Var> gradients = execution.tape().gradient(loss, execution.leaf_values());
    report_.loss_with_queries = loss.value().item();
    report_.gradients_with_queries = values_of(gradients);
  }

  void run_second_order() {
    Execution execution(program_, scene_);
    execution.run();
    Tape& tape = execution.tape();
    std::vector<Var> all = execution.leaf_values();
    std::vector<size_t> steps;
    for (size_t step = 0; step < program_.steps.size(); ++step)
      if (execution.value(step).defined()) steps.push_back(step);
    for (const size_t step : steps) all.push_back(execution.value(step));
    const std::vector<Var> gradients = tape.gradient(execution.loss(), all, Graph::create);
    const size_t leaf = chosen_leaf(execution);
    const std::vector<Var> second =
        tape.gradient(gradients[leaf], Var(projection(execution, leaf)), execution.leaf_values());
    for (size_t i = 0; i < second.size(); ++i)
      report_.second.by_tape += dot(second[i].value(), direction(execution, i), &report_.second.scale);
    for (size_t i = 0; i < steps.size(); ++i)
      claim(gradients[execution.leaves().size() + i], "the gradient of " + name_of(steps[i]));
  }

  void run_moved(double distance) {
    Execution execution(program_, scene_, distance);
    execution.run();
    const Var loss = execution.loss();
    report_.first.values.push_back(loss.value().item());
    if (!second_) return;
    const size_t leaf = chosen_leaf(execution);
    const Var gradient = execution.tape().gradient(loss, {execution.leaf_values()[leaf]})[0];
    report_.second.values.push_back(dot(gradient.value(), projection(execution, leaf)));
  }

  size_t chosen_leaf(const Execution& execution) const { return program_.seed % execution.leaves().size(); }
  Tensor direction(const Execution& execution, size_t leaf) const { return leaf_data(execution, leaf, 0); }
  Tensor projection(const Execution& execution, size_t leaf) const { return leaf_data(execution, leaf, projections); }
  Tensor leaf_data(const Execution& execution, size_t leaf, uint64_t key) const {
    const auto step = static_cast<size_t>(execution.leaves()[leaf]);
    return direction_of(program_, program_.steps[step], execution.layout(step), scene_.world().rank().value, key);
  }
  std::string name_of(size_t step) const {
    return "v" + std::to_string(step) + ", " + step_kinds()[static_cast<size_t>(program_.steps[step].kind)].name;
  }

  // The rule of Tape::backward: a loss that ranks hold together counts once. Of nested groups the largest counts, and
  // groups that share one rank are axes of a grid.
  double weight_of(const Var& loss, const Execution& execution) const {
    std::vector<std::vector<int>> groups;
    const int me = scene_.world().rank().value;
    for (int p = 0; p < scene_.partitions(); ++p) {
      if (!execution.knows(p)) continue;
      const Placement placement = placement_of(loss, scene_.group(p));
      if (placement == Placement::varying || placement == Placement::partial) continue;
      std::vector<int> members = program_.partitions[static_cast<size_t>(p)].members(me);
      std::sort(members.begin(), members.end());
      groups.push_back(std::move(members));
    }
    double holders = 1;
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto contains_it = [&](size_t j) {
        const bool around = std::includes(groups[j].begin(), groups[j].end(), groups[i].begin(), groups[i].end());
        return j != i && around && (groups[j].size() > groups[i].size() || j < i);
      };
      bool largest = true;
      for (size_t j = 0; j < groups.size(); ++j) largest = largest && !contains_it(j);
      if (largest) holders *= static_cast<double>(groups[i].size());
    }
    return 1 / holders;
  }

  void claim(const Var& x, const std::string& of) {
    for (int p = 0; p < scene_.partitions(); ++p) {
      const Placement placement = placement_of(x, scene_.group(p));
      if (placement == Placement::replicated || placement == Placement::invariant || placement == Placement::constant)
        report_.claims.push_back({of, p, placement, x.shape(), x.value().values()});
    }
  }

  void note_exchange(Execution& execution, size_t step) {
    if (step_kinds()[static_cast<size_t>(program_.steps[step].kind)].feature != Feature::custom) return;
    const Step& s = program_.steps[step];
    if (!execution.value(step).defined() || !execution.value(static_cast<size_t>(s.inputs[0])).defined()) return;
    const int64_t rows = execution.layout(step).in[0][static_cast<size_t>(scene_.world().rank().value)];
    const Var given = fit(execution.value(static_cast<size_t>(s.inputs[0])), {rows, columns});
    std::vector<double> made = execution.value(step).value().values();
    for (double& v : made) v /= execution.layout(step).factor;
    report_.exchanges.push_back({static_cast<int>(step), given.value().values(), std::move(made)});
  }

  // A share is a part of a sum already, and a mean of parts is not the sum that they stand for.
  void check_refusals(Execution& execution) {
    for (size_t step = 0; step < program_.steps.size(); ++step) {
      const Step& s = program_.steps[step];
      const std::string& name = step_kinds()[static_cast<size_t>(s.kind)].name;
      if (name != "share" && name != "all_reduce mean") continue;
      const auto input = static_cast<size_t>(s.inputs[0]);
      if (!execution.value(input).defined()) continue;
      const bool of_a_share = step_kinds()[static_cast<size_t>(program_.steps[input].kind)].name == "share";
      const bool partial = placement_of(execution.value(input), scene_.group(s.group)) == Placement::partial;
      if (partial && (name != "share" || of_a_share)) report_.must_refuse.push_back(name + " of a Partial value");
    }
  }

  bool is_first() const { return scene_.world().rank().value == 0; }
  void drop(const std::string& reason) { report_.dropped.push_back(reason); }
  static Program begin_of(const Execution& execution, int step) {
    Program begin = execution.program();
    begin.steps.resize(static_cast<size_t>(step) + 1);
    begin.terms = {{step, true}};
    return begin;
  }

  Trial& trial_;
  Program program_;
  const Rules& rules_;
  const Scene scene_;
  const bool drops_;
  Report& report_;
  bool second_ = true;
};

}  // namespace

std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c < '0' || c > '9')
      result += c;
    else if (!result.ends_with('#'))
      result += '#';
    if (result.ends_with("#, #")) result.resize(result.size() - 3);  // lists of any length
  }
  return result;
}

Trial try_program(const Program& program, const Rules& rules, bool drops) {
  Trial trial{program, std::vector<Report>(static_cast<size_t>(program.ranks)), "", {}};
  try {
    run_ranks(program.ranks, [&](Communicator& world) { RankTrial(trial, program, rules, world, drops).run(); });
  } catch (const std::exception& error) {
    trial.failure = error.what();
  }
  return trial;
}

}  // namespace weft::random_programs
