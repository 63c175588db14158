// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/training.h"

#include "tests/random_programs/values.h"
#include "weft/engine/ops/matmul.h"

namespace weft::random_programs {

namespace {

Tensor moved(int64_t rows, uint64_t key, double distance) {
  return moved_by(random_data(rows, key, 0), random_data(rows, directions_key + key, 0), distance);
}

}  // namespace

// tanh(x w + x): values stay small.
class Training::Layer final : public weft::Layer {
 public:
  explicit Layer(const Tensor& value) : weight("weight", value) { register_parameter(weight); }
  Parameter weight;

 private:
  Var apply(const Var& x, const Pass&) override { return tanh(matmul(x, bind(x, weight)) + x); }
};

Training::Training(const Names& alone, const Names& layers, int stage, Communicator& world, double distance) {
  for (const uint32_t dice : alone)
    parameters_.push_back(&alone_.try_emplace(dice, "p" + text(dice), moved(3, dice, distance)).first->second);
  for (const uint32_t dice : layers)
    parameters_.push_back(&layers_.try_emplace(dice, moved(3, dice, distance)).first->second.weight);
  keys_ = alone;
  keys_.insert(keys_.end(), layers.begin(), layers.end());
  if (parameters_.empty()) return;
  trainer_ = make_trainer({{parameters_, Sgd{}}}, world, {.stage = stage});
  for (auto& [dice, layer] : layers_) units_[dice] = &trainer_->layer("layer" + text(dice), layer);
}

Training::~Training() = default;

Var Training::watch(Tape& tape, uint32_t dice) {
  require(active(), "random programs: nothing is trained");
  return trainer_->watch(tape, alone_.at(dice));
}

Var Training::apply(const Var& x, uint32_t dice) {
  require(active(), "random programs: nothing is trained");
  return (*units_.at(dice))(x);
}

std::vector<double> Training::step() {
  const auto all = [&] {
    std::vector<double> values;
    for (const Parameter* parameter : parameters_)
      for (const double v : trainer_->whole(*parameter).values()) values.push_back(v);
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
  for (const uint32_t key : keys_)
    for (const double v : random_data(3, directions_key + key, 0).values()) values.push_back(v);
  return values;
}

}  // namespace weft::random_programs
