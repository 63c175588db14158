// SPDX-License-Identifier: Apache-2.0
#pragma once
// One gradient check for everything that is differentiable, to first and second order.
//
// With random directions v (inputs) and u (output), <u, J v> by finite differences must equal <J^T u, v> by the tape.
// The same holds for the gradient itself: J^T u projected on a random w, as a function of the inputs and of u. Over
// several ranks with different draws, <,> is the sum over all of them.
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/engine/tape/tape.h"

namespace weft {

using Function = std::function<Var(std::span<const Var>)>;

struct Mismatch {
  double numeric = 0, analytic = 0;
  bool ok(double tolerance = 2e-8) const {
    return std::abs(numeric - analytic) <= tolerance * (1 + std::abs(numeric)) && std::isfinite(analytic);
  }
};

inline double dot(const Tensor& a, const Tensor& b) {
  const auto x = a.values(), y = b.values();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

class GradientCheck {
 public:
  using Total = std::function<double(double)>;  // over ranks

  GradientCheck(
      Function f, const std::vector<Shape>& shapes, double low, double high, Device device, uint64_t seed = 17,
      Total total = [](double x) { return x; })
      : f_(std::move(f)), device_(device), random_{seed, 0, 0}, total_(std::move(total)) {
    for (const Shape& shape : shapes) {
      inputs_.push_back(draw(shape, low, high));
      directions_.push_back(draw(shape, -1, 1));
      projections_.push_back(draw(shape, -1, 1));
    }
    Tape tape;
    const Tensor y = f_(watched(tape, 0)).value();
    seed_ = draw(y.shape(), -1, 1);
    seed_direction_ = draw(y.shape(), -1, 1);
  }

  Mismatch first_order() const {
    Tape tape;
    const std::vector<Var> x = watched(tape, 0);
    const Var y = f_(x);
    return {total_slope([&](double t) {
              Tape moved;
              return dot(seed_, f_(watched(moved, t)).value());
            }),
            total_(along(tape.gradient(y, Var(seed_), x)))};
  }

  Mismatch second_order() const {
    Tape tape;
    std::vector<Var> x = watched(tape, 0);
    const Var u = tape.watch(seed_);
    const std::vector<Var> g = tape.gradient(f_(x), u, x, Graph::create);
    x.push_back(u);
    double analytic = 0;
    for (size_t i = 0; i < g.size(); ++i) analytic += along(tape.gradient(g[i], Var(projections_[i]), x));
    return {total_slope([&](double t) {
              Tape moved;
              const std::vector<Var> at = watched(moved, t);
              const std::vector<Var> gradient = moved.gradient(f_(at), Var(shifted(seed_, seed_direction_, t)), at);
              double sum = 0;
              for (size_t i = 0; i < gradient.size(); ++i) sum += dot(gradient[i].value(), projections_[i]);
              return sum;
            }),
            total_(analytic)};
  }

 private:
  Tensor draw(const Shape& shape, double low, double high) {
    const Tensor t = Tensor::uniform(shape, random_, low, high, DType::f64, device_);
    ++random_.stream;
    return t;
  }
  std::vector<Var> watched(Tape& tape, double t) const {
    std::vector<Var> x;
    for (size_t i = 0; i < inputs_.size(); ++i) x.push_back(tape.watch(shifted(inputs_[i], directions_[i], t)));
    return x;
  }
  Tensor shifted(const Tensor& from, const Tensor& direction, double t) const {
    std::vector<double> values = from.values();
    const std::vector<double> d = direction.values();
    for (size_t k = 0; k < values.size(); ++k) values[k] += t * d[k];
    return Tensor::from(from.shape(), values, DType::f64, device_);
  }
  double along(const std::vector<Var>& gradient) const {
    double sum = 0;
    for (size_t i = 0; i < gradient.size(); ++i)
      sum += dot(gradient[i].value(), i < directions_.size() ? directions_[i] : seed_direction_);
    return sum;
  }
  // The derivative at 0 by the five-point rule, exact for polynomials up to the fourth degree.
  double total_slope(const std::function<double(double)>& f) const {
    constexpr double h = 1e-3;
    double sum = 0;
    for (const auto& [step, weight] :
         {std::pair(h, 8.0), std::pair(-h, -8.0), std::pair(2 * h, -1.0), std::pair(-2 * h, 1.0)})
      sum += weight * f(step);  // in the same order on every rank, because f has collectives
    return total_(sum / (12 * h));
  }

  Function f_;
  Device device_;
  Random random_;
  Total total_;
  std::vector<Tensor> inputs_, directions_, projections_;
  Tensor seed_, seed_direction_;
};

}  // namespace weft
