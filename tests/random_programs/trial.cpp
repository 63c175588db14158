// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/trial.h"

#include <algorithm>
#include <cmath>

#include "tests/random_programs/values.h"
#include "weft/collectives/group_placement.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

namespace {

constexpr uint64_t projections = uint64_t{3} << 32;  // added to keys

std::vector<std::vector<double>> values_of(const std::vector<Var>& vars) {
  std::vector<std::vector<double>> values;
  for (const Var& v : vars) values.push_back(v.value().values());
  return values;
}

// All runs of one program on one rank.
class RankTrial {
 public:
  RankTrial(Trial& trial, const Program& program, const Rules& rules, Communicator& world)
      : trial_(trial),
        program_(program),
        rules_(rules),
        scene_(program_, world),
        report_(trial.reports[static_cast<size_t>(world.rank().value)]) {}

  void run() {
    if (rules_.drops) report_.refused = why_refused([&] { select(); });
    if (!report_.refused.empty() || program_.terms.empty()) return;
    report_.refused = why_refused([&] { run_plainly(); });
    if (!report_.refused.empty()) return;
    if (!(report_.asked = why_refused([&] { run_with_queries(); })).empty()) return;
    // The second derivatives of trained parameters are on no tape.
    second_ = program_.stage < 0 && !report_.gradients.empty();
    if (second_) report_.second_refused = why_refused([&] { run_second_order(); });
    second_ = second_ && report_.second_refused.empty();
    for (const double distance : distances) run_moved(distance * rules_.step);
  }

 private:
  void select() {
    Selection selection(program_, scene_, report_.dropped);
    program_ = selection.select();
    if (scene_.world().rank().value != 0) return;
    trial_.program = program_;
    trial_.up_to_wrong_refusal = selection.up_to_refusal([&](auto& why) { return rules_.is_wrong_refusal(why); });
  }

  void run_plainly() {
    Execution execution(program_, scene_);
    execution.run();
    const Var loss = execution.loss();
    report_.loss = loss.value().item();
    report_.gradients = gradients(execution, loss);
    for (size_t i = 0; i < execution.leaves().size(); ++i)
      add_terms(report_.gradients[i], direction(execution, i).values(), report_.first);
    if (execution.training().active())
      add_terms(report_.gradients.back(), execution.training().directions(), report_.first);
  }
  static void add_terms(const std::vector<double>& gradient, const std::vector<double>& direction, Slope& slope) {
    for (size_t i = 0; i < direction.size(); ++i) {
      slope.by_tape += gradient[i] * direction[i];
      slope.scale += std::abs(gradient[i] * direction[i]);
    }
  }

  // The gradients of all leaves, by a query and then by backward. If parameters are trained, backward alone knows the
  // trainer's group; it gives their gradients as well.
  std::vector<std::vector<double>> gradients(Execution& execution, const Var& loss) {
    Training& training = execution.training();
    std::vector<std::vector<double>> result;
    if (!training.active()) result = values_of(execution.tape().gradient(loss, execution.leaf_values()));
    Gradients plain, both(training.active() ? std::vector{&training.gradients(), &plain} : std::vector{&plain});
    execution.tape().backward(loss, both);
    report_.gradients_of_backward.clear();
    for (size_t i = 0; i < execution.leaves().size(); ++i) {
      const Tensor sum = execution.gradient_of_leaf(both, i);
      const auto size = static_cast<size_t>(execution.value(static_cast<size_t>(execution.leaves()[i])).size());
      report_.gradients_of_backward.push_back(sum.defined() ? sum.values() : std::vector<double>(size));
    }
    if (!training.active()) return result;
    result = report_.gradients_of_backward;
    result.push_back(training.step());
    return result;
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
    report_.loss_with_queries = loss.value().item();
    report_.gradients_with_queries = gradients(execution, loss);
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
      add_terms(second[i].value().values(), direction(execution, i).values(), report_.second);
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
    Slope sum;
    add_terms(gradient.value().values(), projection(execution, leaf).values(), sum);
    report_.second.values.push_back(sum.by_tape);
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
  double weight_of(const Var& loss, Execution& execution) const {
    std::vector<std::vector<int>> groups;  // that hold the loss together
    const auto add = [&](const Communicator& group) {
      const Placement placement = placement_of(loss, group);
      if (placement == Placement::varying || placement == Placement::partial) return;
      std::vector<int> members;
      for (int r = 0; r < group.size(); ++r) members.push_back(group.global({r}).value);
      std::sort(members.begin(), members.end());
      groups.push_back(std::move(members));
    };
    for (int p = 0; p < scene_.partitions(); ++p)
      if (execution.knows(p)) add(scene_.group(p));
    for (const auto& group : execution.training().across()) add(*group);
    double holders = 1;
    for (size_t i = 0; i < groups.size(); ++i)
      if (is_largest(groups, i)) holders *= static_cast<double>(groups[i].size());
    return 1 / holders;
  }
  // Whether no other group has all of its ranks; the first of equal ones counts.
  static bool is_largest(const std::vector<std::vector<int>>& groups, size_t i) {
    for (size_t j = 0; j < groups.size(); ++j) {
      const bool around = std::includes(groups[j].begin(), groups[j].end(), groups[i].begin(), groups[i].end());
      if (j != i && around && (groups[j].size() > groups[i].size() || j < i)) return false;
    }
    return true;
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
      if (scene_.group(s.group).size() == 1 && name != "share") continue;
      const bool partial = placement_of(execution.value(input), scene_.group(s.group)) == Placement::partial;
      if (partial && (name != "share" || of_a_share)) report_.must_refuse.push_back(name + " of a Partial value");
    }
  }

  Trial& trial_;
  Program program_;
  const Rules& rules_;
  const Scene scene_;
  Report& report_;
  bool second_ = false;  // whether there is a second derivative
};

}  // namespace

std::string without_numbers(const std::string& text) {
  std::string result;
  for (const char c : text.substr(0, text.find('\n'))) {
    if (c < '0' || c > '9')
      result += c;
    else if (!result.ends_with('#'))
      result += '#';
    if (result.ends_with("-#")) result.erase(result.size() - 2, 1);
    if (result.ends_with("#.#")) result.resize(result.size() - 2);
    if (result.ends_with("#, #")) result.resize(result.size() - 3);  // lists of any length
  }
  return result;
}

Trial try_program(const Program& program, const Rules& rules) {
  Trial trial{program, rules.step, std::vector<Report>(static_cast<size_t>(program.ranks)), "", {}};
  try {
    run_ranks(program.ranks, [&](Communicator& world) { RankTrial(trial, program, rules, world).run(); });
  } catch (const std::exception& error) {
    trial.failure = error.what();
  }
  return trial;
}

}  // namespace weft::random_programs
