// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/execution.h"

#include <algorithm>

#include "tests/random_programs/values.h"
#include "weft/collectives/fault.h"
#include "weft/collectives/group_placement.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

Scene::Scene(const Program& program, Communicator& world) : world_(world) {
  const int me = world.rank().value;
  for (size_t i = 1; i < program.partitions.size(); ++i) {
    const Partition& partition = program.partitions[i];
    groups_.push_back(world.split(partition.color[static_cast<size_t>(me)], partition.reversed ? -me : me));
  }
}

namespace {

constexpr uint64_t weights_key = 2 * directions_key;

int whose(const Program& program, const Step& step, int rank) {
  return step_kinds()[static_cast<size_t>(step.kind)].whose(program, step, rank);
}

}  // namespace

Tensor direction_of(const Program& program, const Step& step, const Layout& layout, int rank, uint64_t key) {
  return drawn(layout.out[static_cast<size_t>(rank)], directions_key + key + step.dice, whose(program, step, rank));
}

namespace {

std::vector<Training::Part> trained_parts(const Program& program, const Scene& scene) {
  std::vector<Training::Part> parts;
  if (program.stage < 0) return parts;
  for (const Step& step : program.steps)
    if (const auto use = step_kinds()[static_cast<size_t>(step.kind)].trained)
      parts.push_back({*use, step.dice, &scene.group(step.group)});
  return parts;
}

}  // namespace

Execution::Execution(Program program, const Scene& scene, double distance, Asks asks)
    : training_(trained_parts(program, scene), program.stage, scene.world(), distance),
      scene_(scene),
      distance_(distance),
      asks_(std::move(asks)),
      known_(static_cast<size_t>(scene.partitions())) {
  replace(std::move(program));
  if (program_.declares_world) declare_group(tape_, scene_.world());
  known_[0] = program_.declares_world || training_.active();
}

void Execution::replace(Program program) {
  program_ = std::move(program);
  layouts_ = lay_out(program_).of_steps;
  slots_.resize(done_);
  slots_.resize(program_.steps.size());
}

void Execution::run() {
  while (done_ < program_.steps.size()) {
    const size_t last = end_of_piece(done_);
    if (last > done_ + 1 || program_.steps[done_].piece != 0)
      run_piece(done_, last);
    else
      run_step(done_, slots_);
    for (; done_ < last; ++done_)
      if (kind(done_).is_leaf()) leaves_.push_back(static_cast<int>(done_));
  }
  for (size_t step = 0; step < slots_.size(); ++step) finished(slots_[step], step);
}

namespace {

// Calls `body`; an Error other than the end of the whole job is a refusal of this step.
template <class Body> auto refusing(size_t step, Body body) try { return body(); } catch (const Fault&) {
  throw;
} catch (const Refusal&) {
  throw;
} catch (const std::exception& error) {
  throw Refusal(static_cast<int>(step), error.what());
}

}  // namespace

void Execution::run_step(size_t step, Slots& slots) {
  refusing(step, [&] {
    const Call call = call_of(step, slots);
    const StepKind& kind = this->kind(step);
    const bool on_tape = std::any_of(call.x.begin(), call.x.end(), [](const Var& x) { return x.tape() != nullptr; });
    if (kind.over_group && (on_tape || kind.inputs == 0)) known_[static_cast<size_t>(call.step.group)] = true;
    if (call.step.halves && kind.start)
      slots[step].started = kind.start(call);
    else
      slots[step].value = complete(step, kind.run(call));
  });
}

Var Execution::complete(size_t step, const Var& result) const {
  const double factor = layouts_[step].factor;
  const Var value = factor == 1 ? result : result * factor;
  if (asks_ && !tape_.recomputing()) asks_(step, value);
  return value;
}

const Var& Execution::finished(Slot& slot, size_t step) {
  if (slot.started)
    refusing(step, [&] { slot.value = complete(step, std::exchange(slot.started, std::nullopt)->wait()); });
  return slot.value;
}

Call Execution::call_of(size_t step, Slots& slots) {
  const Step& s = program_.steps[step];
  const Layout& layout = layouts_[step];
  Vars x;
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    const auto input = static_cast<size_t>(s.inputs[i]);
    x.push_back(fit(finished(slots[input], input), {layout.in[i][static_cast<size_t>(rank())], columns}));
  }
  return {program_,
          s,
          layout,
          std::move(x),
          tape_,
          scene_.world(),
          scene_.group(s.group),
          training_,
          [this, step] { return data_of(step); },
          [this, step]() -> const Parameter& { return parameter_of(step); }};
}

Tensor Execution::data_of(size_t step) const {
  const Step& s = program_.steps[step];
  const Tensor data = drawn(layouts_[step].out[static_cast<size_t>(rank())], s.dice, whose(program_, s, rank()));
  if (!kind(step).is_leaf()) return data;
  return moved_by(data, direction_of(program_, s, layouts_[step], rank()), distance_);
}

const Parameter& Execution::parameter_of(size_t step) {
  return parameters_.try_emplace(program_.steps[step].dice, "p", data_of(step)).first->second;
}

size_t Execution::end_of_piece(size_t first) const {
  size_t last = first + 1;
  const int piece = program_.steps[first].piece;
  while (piece != 0 && last < program_.steps.size() && program_.steps[last].piece == piece) ++last;
  return last;
}

void Execution::run_piece(size_t first, size_t last) {
  const std::vector<int> inputs = inputs_of_piece(program_, first, last),
                         outputs = outputs_of_piece(program_, first, last);
  Vars values;
  for (const int input : inputs) values.push_back(value(static_cast<size_t>(input)));
  const auto piece = [=, this](std::span<const Var> x) { return run_inside(first, last, inputs, outputs, x); };
  refusing(last - 1, [&] {
    const Vars results = checkpoint(PooledFunction<Vars(std::span<const Var>)>(piece), std::move(values));
    for (size_t i = 0; i < outputs.size(); ++i) slots_[static_cast<size_t>(outputs[i])].value = results[i];
  });
}

Vars Execution::run_inside(size_t first, size_t last, const std::vector<int>& inputs, const std::vector<int>& outputs,
                           std::span<const Var> values) {
  Slots slots(program_.steps.size());
  for (size_t i = 0; i < inputs.size(); ++i) slots[static_cast<size_t>(inputs[i])].value = values[i];
  for (size_t step = first; step < last; ++step) run_step(step, slots);
  for (size_t step = first; step < last; ++step) finished(slots[step], step);
  Vars results;
  for (const int output : outputs) results.push_back(slots[static_cast<size_t>(output)].value);
  return results;
}

Var Execution::term(const Term& term) {
  const auto step = static_cast<size_t>(term.value);
  const int64_t rows = layouts_[step].out[static_cast<size_t>(rank())];
  const uint64_t key = weights_key + program_.steps[step].dice;
  if (program_.has_own_weights(term, layouts_[step]))
    return sum(value(step) * tape_.constant(drawn(rows, key, rank())));
  if (term.weights == Weights::summed && value(step).tape()) known_[0] = true;
  const Var weighted = sum(value(step) * replicated_constant(drawn(rows, key, 0)));
  return term.weights == Weights::summed ? all_reduce(weighted, scene_.world()) : weighted;
}

Var Execution::loss() {
  Var loss = term(program_.terms[0]);
  for (size_t i = 1; i < program_.terms.size(); ++i) loss = loss + term(program_.terms[i]);
  return loss;
}

std::vector<Var> Execution::leaf_values() {
  std::vector<Var> values;
  for (const int leaf : leaves_) values.push_back(value(static_cast<size_t>(leaf)));
  return values;
}

Tensor Execution::gradient_of_leaf(const Gradients& gradients, size_t leaf) {
  const auto step = static_cast<size_t>(leaves_[leaf]);
  const auto parameter = parameters_.find(program_.steps[step].dice);
  return parameter != parameters_.end() ? gradients[parameter->second] : gradients[value(step)];
}

}  // namespace weft::random_programs
