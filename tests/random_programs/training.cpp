// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/training.h"

#include "tests/random_programs/values.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/collectives/sharding.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/matmul.h"

namespace weft::random_programs {

namespace {

// tanh(x w + x): values stay small.
class SmallLayer final : public Layer {
 public:
  explicit SmallLayer(const Tensor& value) : weight_("weight", value) { register_parameter(weight_); }

 private:
  Var apply(const Var& x, const Pass&) override { return tanh(matmul(x, bind(x, weight_)) + x); }
  Parameter weight_;
};

std::unique_ptr<Layer> layer_of(const Training::Part& part) {
  if (part.use == Training::Use::layer) return std::make_unique<SmallLayer>(drawn(3, part.dice, 0));
  const Init init{.key = {part.dice}, .dtype = DType::f64};
  return std::make_unique<ParallelMlp>("mlp" + text(part.dice), 3, 4, 3, init, *part.group,
                                       Activation{.op = Unary::Tanh});
}

}  // namespace

Training::Training(const std::vector<Part>& parts, int stage, Communicator& world, double distance) {
  for (const Part& part : parts) {
    if (part.use == Use::alone) {
      const Tensor value = drawn(3, part.dice, 0);
      add(alone_.try_emplace(part.dice, "p" + text(part.dice), value).first->second, part.dice, world, distance);
      continue;
    }
    if (part.use == Use::divided_layer) across_.push_back(world.split(part.group->rank().value));
    uint32_t key = part.dice;
    const auto& layer = layers_[part.dice] = layer_of(part);
    for (Parameter* parameter : layer->parameters()) add(*parameter, key++, world, distance);
  }
  if (parts.empty()) return;
  std::vector<Parameter*> parameters;
  for (const Entry& entry : entries_) parameters.push_back(entry.parameter);
  trainer_ = make_trainer({{parameters, Sgd{}}}, world, {.stage = stage});
  for (auto& [dice, layer] : layers_) units_[dice] = &trainer_->layer("layer" + text(dice), *layer);
}

void Training::add(Parameter& parameter, uint32_t key, const Communicator& world, double distance) {
  const bool divided = is_divided(parameter);
  const int place = divided ? parameter.sharding->group.rank().value : 0;
  bool counts = world.rank().value == 0;
  for (int r = 0; divided && r < parameter.sharding->group.size(); ++r)
    counts = counts || parameter.sharding->group.global({r}).value == 0;
  const Random random{directions_key + key, static_cast<uint64_t>(place)};
  const Tensor direction = Tensor::uniform(parameter.value.shape(), random, -1, 1, DType::f64);
  parameter.value = moved_by(parameter.value, direction, distance);
  entries_.push_back({&parameter, direction, counts});
}

Training::~Training() = default;

Var Training::watch(Tape& tape, uint32_t dice) {
  require(active(), "random programs: nothing is trained");
  return trainer_->watch(tape, alone_.at(dice));
}

// A layer that is called on no tape is not trained: bind() takes its parameters for constants.
Var Training::apply(const Var& x, uint32_t dice) {
  require(active(), "random programs: nothing is trained");
  require(x.tape() != nullptr, "random programs: the input of a layer is on no tape");
  return (*units_.at(dice))(x);
}

std::vector<double> Training::step() {
  const auto all = [&] {
    std::vector<double> values;
    for (const Entry& entry : entries_)
      for (const double v : trainer_->whole(*entry.parameter).values()) values.push_back(v);
    return values;
  };
  std::vector<double> values = all();
  trainer_->step(1);
  const std::vector<double> after = all();
  for (size_t i = 0; i < values.size(); ++i) values[i] -= after[i];
  return values;
}

std::vector<double> Training::directions() const {
  std::vector<double> values;
  for (const Entry& entry : entries_)
    for (const double v : entry.direction.values()) values.push_back(entry.counts ? v : 0);
  return values;
}

}  // namespace weft::random_programs
