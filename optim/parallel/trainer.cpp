// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/trainer.h"

#include <cmath>

namespace weft {

void Trainer::add(std::unique_ptr<Bundle> bundle) {
  optimizers_.push_back(&bundle->optimizer());
  bundles_.push_back(std::move(bundle));
  std::vector<Gradients*> parts;
  for (const auto& each : bundles_) parts.push_back(&each->gradients());
  all_gradients_ = Gradients(std::move(parts));
}

Optimizer& Trainer::optimizer() const {
  require(optimizers_.size() == 1, "training: there are ", optimizers_.size(),
          " optimizers, since parameters have several types or are summed over several groups; see optimizers()");
  return *optimizers_[0];
}

Trainer::Home Trainer::home_of(const Parameter& parameter) const {
  for (size_t i = 0; i < bundles_.size(); ++i)
    if (const int64_t place = optimizers_[i]->parameters().layout().find(parameter); place >= 0) return {i, place};
  fail({"training: ", parameter.name, " is not among the parameters that are trained"});
}

void Trainer::expect_last_pass() {
  for (const auto& bundle : bundles_) bundle->expect_last_pass();
}

void Trainer::reduce() {
  if (is_reduced_) return;
  for (const auto& bundle : bundles_) bundle->reduce();
  is_reduced_ = true;
}

double Trainer::norm() {
  reduce();
  double squares = 0;
  for (const auto& bundle : bundles_) {
    const double norm = bundle->optimizer().norm(bundle->sums(), bundle->present());
    squares += norm * norm;
  }
  return std::sqrt(squares);
}

Tensor Trainer::reduced(const Parameter& parameter) {
  reduce();
  const auto [number, index] = home_of(parameter);
  Bundle& bundle = *bundles_[number];
  if (!bundle.present()[static_cast<size_t>(index)]) return {};
  const Optimizer& optimizer = bundle.optimizer();
  const FlatLayout& layout = optimizer.parameters().layout();
  const Range owned = optimizer.owned(),
              mine = intersection(owned, layout.places()[static_cast<size_t>(index)].range());
  const Tensor sums = bundle.sums_to_change();
  const Tensor values =
      mine.size() == 0 ? sums.slice(0, 0) : sums.slice(mine.first - owned.first, mine.last - owned.first);
  return owned == layout.all() ? values.reshape(parameter.value.shape()) : values;
}

double Trainer::step(double rate, double max_norm) {
  reduce();
  const bool clips = !std::isinf(max_norm);
  const double norm = clips ? this->norm() : 0, scale = clips ? clip(norm, max_norm) : 1;
  std::string unused;
  for (const auto& bundle : bundles_) bundle->optimizer().add_unused(bundle->present(), unused);
  Optimizer::expect_none_unused(unused);
  update(rate, scale);
  publish();
  discard();
  return norm;
}

void Trainer::update(double rate, double scale) {
  for (const auto& bundle : bundles_) bundle->optimizer().step(bundle->sums(), bundle->present(), rate, scale);
}

void Trainer::publish() {
  for (const auto& bundle : bundles_) bundle->publish_updates();
}

void Trainer::discard() {
  for (const auto& bundle : bundles_) bundle->clear();
  is_reduced_ = false;
}

// The function works on a copy of what is on the host, since ranks may share its memory, and of bf16: a bf16 value that
// has not changed is not set, which would round its master weight.
void Trainer::change(Parameter& parameter, const std::function<void()>& f) {
  const Tensor before = whole(parameter);
  const bool in_place = before.device() != Device::cpu && before.dtype() != DType::bf16;
  const Tensor kept = std::exchange(parameter.value, in_place ? before : before.clone());
  f();
  const Tensor after = std::exchange(parameter.value, kept);
  if (after.dtype() != DType::bf16 || after.values() != before.values()) set(parameter, after);
}

}  // namespace weft
