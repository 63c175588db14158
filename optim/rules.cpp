// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/engine/maths/maths.h"

namespace weft {
namespace {

void check_fraction(const char* rule, const char* what, double x) {
  require(x >= 0 && x < 1, rule, ": ", what, " ", x, " is outside [0, 1)");
}
void check_not_negative(const char* rule, const char* what, double x) {
  require(x >= 0 && std::isfinite(x), rule, ": ", what, " ", x, " is not a finite number >= 0");
}
// Without an epsilon, an element whose gradients were all zero would become 0 / 0.
template <class A> void check_moments(const char* rule, const A& adam) {
  check_fraction(rule, "beta1", adam.beta1);
  check_fraction(rule, "beta2", adam.beta2);
  check_not_negative(rule, "weight decay", adam.weight_decay);
  require(static_cast<float>(adam.epsilon) > 0, rule, ": epsilon ", adam.epsilon, " is not above 0");
}
template <class S> void check_velocity(const char* rule, const S& sgd) {
  check_fraction(rule, "momentum", sgd.momentum);
  check_not_negative(rule, "weight decay", sgd.weight_decay);
}

template <class A> UpdateScalars moments(const A& adam, const StepPoint& at) {
  const double t = static_cast<double>(at.step);
  UpdateScalars s;
  s.scale = at.gradient_scale;
  s.rate = at.rate / (1 - maths::pow(adam.beta1, t));
  s.beta1 = adam.beta1;
  s.beta2 = adam.beta2;
  s.epsilon = adam.epsilon;
  s.root_correction = 1 / std::sqrt(1 - maths::pow(adam.beta2, t));
  return s;
}

// As PyTorch's adjust_lr_fn.
double adjusted(const Muon& muon, const Shape& shape) {
  const auto outputs = static_cast<double>(shape[-1]), inputs = static_cast<double>(shape.size()) / outputs;
  switch (muon.adjust) {
    case Muon::Adjust::original: return std::sqrt(std::max(1.0, outputs / inputs));
    case Muon::Adjust::match_rms_adamw: return 0.2 * std::sqrt(std::max(outputs, inputs));
    case Muon::Adjust::spectral_unclamped: return std::sqrt(outputs / inputs);
  }
  return 1;
}

struct NameOf {
  const char* operator()(const Sgd&) const { return "sgd"; }
  const char* operator()(const Adam&) const { return "adam"; }
  const char* operator()(const AdamW&) const { return "adamw"; }
  const char* operator()(const Lars&) const { return "lars"; }
  const char* operator()(const Lamb&) const { return "lamb"; }
  const char* operator()(const Muon&) const { return "muon"; }
  const char* operator()(const Adafactor&) const { return "adafactor"; }
};

struct Checks {
  void operator()(const Sgd& r) const {
    check_velocity("sgd", r);
    require(!r.nesterov || r.momentum > 0, "sgd: nesterov needs a momentum");
  }
  void operator()(const Adam& r) const { check_moments("adam", r); }
  void operator()(const AdamW& r) const { check_moments("adamw", r); }
  void operator()(const Lars& r) const {
    check_velocity("lars", r);
    check_not_negative("lars", "trust", r.trust);
    check_not_negative("lars", "epsilon", r.epsilon);
  }
  void operator()(const Lamb& r) const { check_moments("lamb", r); }
  void operator()(const Muon& r) const {
    check_velocity("muon", r);
    require(r.iterations >= 0, "muon: ", r.iterations, " iterations");
    require(r.epsilon > 0, "muon: epsilon ", r.epsilon, " is not above 0");
  }
  void operator()(const Adafactor& r) const {
    require(r.beta2_decay <= 0, "adafactor: beta2_decay ", r.beta2_decay, " is above 0");
    check_not_negative("adafactor", "epsilon1", r.epsilon1);
    check_not_negative("adafactor", "epsilon2", r.epsilon2);
    check_not_negative("adafactor", "weight decay", r.weight_decay);
    require(r.d >= 1, "adafactor: d ", r.d, " is below 1");
  }
};

struct DirectionScalars {
  const StepPoint& at;

  template <class R> UpdateScalars operator()(const R&) const { return {}; }
  // The rate is applied in the descent, when the norm of the direction is known.
  UpdateScalars operator()(const Lamb& r) const {
    UpdateScalars s = moments(r, {at.step, 1, at.gradient_scale});
    s.shrink = r.weight_decay;
    return s;
  }
  UpdateScalars operator()(const Muon& r) const {
    UpdateScalars s;
    s.scale = at.gradient_scale;
    s.beta1 = r.momentum;
    s.nesterov = r.nesterov;
    return s;
  }
  UpdateScalars operator()(const Adafactor& r) const {
    const double machine =
        at.dtype == DType::f64 ? std::numeric_limits<double>::epsilon() : double{std::numeric_limits<float>::epsilon()};
    const double root = r.epsilon1 > 0 ? r.epsilon1 : machine;
    UpdateScalars s;
    s.scale = at.gradient_scale;
    s.beta2 = 1 - maths::pow(static_cast<double>(at.step), r.beta2_decay);
    s.epsilon = root * root;
    return s;
  }
};

struct ScalarsAt {
  const StepPoint& at;

  UpdateScalars operator()(const Sgd& r) const { return velocity(r, 1, r.nesterov); }
  UpdateScalars operator()(const Adam& r) const {
    UpdateScalars s = moments(r, at);
    s.decay = r.weight_decay;
    return s;
  }
  UpdateScalars operator()(const AdamW& r) const {
    UpdateScalars s = moments(r, at);
    s.shrink = 1 - at.rate * r.weight_decay;
    return s;
  }
  UpdateScalars operator()(const Lars& r) const {
    const double p = at.value_norm, g = std::abs(at.gradient_scale) * at.direction_norm;
    const bool adapted = r.adapt && p > 0 && g > 0;
    return velocity(r, adapted ? r.trust * p / (g + r.weight_decay * p + r.epsilon) : 1, false);
  }
  UpdateScalars operator()(const Lamb& r) const {
    const double p = at.value_norm, direction = at.direction_norm;
    return descent(0, r.adapt && p > 0 && direction > 0 ? p / direction : 1);
  }
  UpdateScalars operator()(const Muon& r) const { return descent(r.weight_decay, adjusted(r, at.shape)); }
  UpdateScalars operator()(const Adafactor& r) const {
    const double root = std::sqrt(static_cast<double>(at.shape.size()));
    const double rms = at.value_norm / root, rms_of_direction = at.direction_norm / root;
    const double slowed = std::min(1.0, 1 / (std::sqrt(static_cast<double>(at.step)) * at.rate));
    return descent(r.weight_decay, std::max(r.epsilon2, rms) * slowed / std::max(1.0, rms_of_direction / r.d));
  }

 private:
  UpdateScalars descent(double decay, double scale) const {
    UpdateScalars s;
    s.scale = scale;
    s.decay = decay;
    s.rate = at.rate;
    return s;
  }
  template <class S> UpdateScalars velocity(const S& r, double adapted, bool nesterov) const {
    UpdateScalars s;
    s.scale = adapted * at.gradient_scale;
    s.decay = adapted * r.weight_decay;
    s.rate = at.rate;
    s.beta1 = r.momentum;
    s.nesterov = nesterov;
    return s;
  }
};

using Names = std::vector<std::string>;
template <class R> bool is(const Rule& rule) { return std::holds_alternative<R>(rule); }
bool is_amsgrad(const Rule& rule) {
  const auto* adam = std::get_if<Adam>(&rule);
  const auto* adamw = std::get_if<AdamW>(&rule);
  return (adam && adam->amsgrad) || (adamw && adamw->amsgrad);
}

}  // namespace

void check(const Rule& rule) { std::visit(Checks{}, rule); }
void check(const Rule& rule, const Shape& shape, const std::string& parameter) {
  require(!is<Muon>(rule) || shape.rank() >= 2, "muon: ", parameter, " is ", shape,
          ", no matrix; give it to AdamW, in a group of its own");
}
std::string name(const Rule& rule) { return std::visit(NameOf{}, rule); }

bool needs_whole(const Rule& rule, const Shape& shape) { return is<Muon>(rule) || factors(rule, shape); }
bool factors(const Rule& rule, const Shape& shape) { return is<Adafactor>(rule) && shape.rank() >= 2; }

std::vector<std::string> slots(const Rule& rule, const Shape& shape) {
  if (const Sgd* sgd = std::get_if<Sgd>(&rule)) return sgd->momentum == 0 ? Names{} : Names{"velocity"};
  if (is<Lars>(rule)) return {"velocity"};
  if (is<Muon>(rule)) return {"m"};
  if (is<Adafactor>(rule)) return factors(rule, shape) ? Names{} : Names{"v"};
  return is_amsgrad(rule) ? Names{"m", "v", "largest"} : Names{"m", "v"};
}

std::optional<UpdateRule> direction_kernel(const Rule& rule) {
  if (is<Lamb>(rule)) return UpdateRule::adam_direction;
  if (is<Muon>(rule)) return UpdateRule::momentum_direction;
  if (is<Adafactor>(rule)) return UpdateRule::variance_direction;
  return {};
}

UpdateRule kernel(const Rule& rule) {
  if (direction_kernel(rule)) return UpdateRule::descent;
  if (is<Adam>(rule) || is<AdamW>(rule)) return is_amsgrad(rule) ? UpdateRule::amsgrad : UpdateRule::adam;
  return slots(rule, {}).empty() ? UpdateRule::descent : UpdateRule::momentum;
}

UpdateScalars direction_scalars(const Rule& rule, const StepPoint& point) {
  return std::visit(DirectionScalars{point}, rule);
}
UpdateScalars scalars(const Rule& rule, const StepPoint& point) { return std::visit(ScalarsAt{point}, rule); }

bool adapts(const Rule& rule) {
  const Lars* lars = std::get_if<Lars>(&rule);
  const Lamb* lamb = std::get_if<Lamb>(&rule);
  return (lars && lars->adapt) || (lamb && lamb->adapt) || is<Adafactor>(rule);
}

}  // namespace weft
