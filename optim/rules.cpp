#include "optim/rules.h"

#include <cmath>

namespace weft {
namespace {

void check_fraction(const char* rule, const char* what, double x) {
  require(x >= 0 && x < 1, rule, ": ", what, " ", x, " is outside [0, 1)");
}
void check_not_negative(const char* rule, const char* what, double x) {
  require(x >= 0 && std::isfinite(x), rule, ": ", what, " ", x, " is not a finite number >= 0");
}
// Without an epsilon, an element whose gradient was always zero would become 0 / 0.
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
  s.rate = at.rate / (1 - std::pow(adam.beta1, t));
  s.beta1 = adam.beta1;
  s.beta2 = adam.beta2;
  s.epsilon = adam.epsilon;
  s.root_correction = 1 / std::sqrt(1 - std::pow(adam.beta2, t));
  return s;
}

struct Names {
  const char* operator()(const Sgd&) const { return "sgd"; }
  const char* operator()(const Adam&) const { return "adam"; }
  const char* operator()(const AdamW&) const { return "adamw"; }
  const char* operator()(const Lars&) const { return "lars"; }
  const char* operator()(const Lamb&) const { return "lamb"; }
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
    const double p = at.value_norm, g = std::abs(at.gradient_scale) * at.gradient_norm;
    const bool adapted = r.adapt && p > 0 && g > 0;
    return velocity(r, adapted ? r.trust * p / (g + r.weight_decay * p + r.epsilon) : 1, false);
  }
  // Of the direction alone; the rate comes with its norm.
  UpdateScalars operator()(const Lamb& r) const {
    UpdateScalars s = moments(r, {at.step, 1, at.gradient_scale});
    s.shrink = r.weight_decay;
    return s;
  }

 private:
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

}  // namespace

void check(const Rule& rule) { std::visit(Checks{}, rule); }
std::string name(const Rule& rule) { return std::visit(Names{}, rule); }

std::vector<std::string> slots(const Rule& rule) {
  if (const Sgd* sgd = std::get_if<Sgd>(&rule); sgd && sgd->momentum == 0) return {};
  if (std::holds_alternative<Sgd>(rule) || std::holds_alternative<Lars>(rule)) return {"velocity"};
  return {"m", "v"};
}

UpdateRule kernel(const Rule& rule) {
  if (std::holds_alternative<Lamb>(rule)) return UpdateRule::adam_direction;
  const size_t kept = slots(rule).size();
  return kept == 0 ? UpdateRule::descent : kept == 1 ? UpdateRule::momentum : UpdateRule::adam;
}

UpdateScalars scalars(const Rule& rule, const StepPoint& point) { return std::visit(ScalarsAt{point}, rule); }

bool adapts(const Rule& rule) {
  const Lars* lars = std::get_if<Lars>(&rule);
  const Lamb* lamb = std::get_if<Lamb>(&rule);
  return (lars && lars->adapt) || (lamb && lamb->adapt);
}

double lamb_ratio(double value_norm, double direction_norm) {
  return value_norm > 0 && direction_norm > 0 ? value_norm / direction_norm : 1;
}

}  // namespace weft
