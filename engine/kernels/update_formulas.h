// SPDX-License-Identifier: Apache-2.0
#pragma once
// The formulas by which a step of an optimizer updates one element, each written once for CPU and CUDA. optim/ computes
// the numbers in them (bias corrections, groups, adapted rates).
//
// Every multiply-add is an explicit std::fma, so that the bits of an element depend neither on its position in a run
// nor on the division of the memory. A zero gradient of a zero value with zero slots leaves all of them zero.
#include <cmath>
#include <span>

#include "weft/engine/tensor/tensor.h"

namespace weft {

enum class UpdateRule : uint8_t {
  descent,
  momentum,
  adam,
  amsgrad,
  adam_direction,
  momentum_direction,
  variance_direction
};

struct UpdateScalars {
  double scale = 1;   // of the gradient: a mean, clipping, an adapted rate
  double decay = 0;   // the gradient is scale g + decay p
  double shrink = 1;  // adam: p = shrink p - rate direction; adam_direction: shrink p is added to the direction
  double rate = 0;    // includes adam's correction of the first moment
  double beta1 = 0;   // or the momentum
  double beta2 = 0;
  double epsilon = 0;          // variance_direction: the minimum of the second moment
  double root_correction = 1;  // factor of the root of the second moment
  bool nesterov = false;
  bool operator==(const UpdateScalars&) const = default;
};

// Consecutive elements with the same scalars, from element `first` on of the memory that is updated.
struct UpdateRun {
  Tensor gradient;
  int64_t first = 0;
  UpdateScalars scalars = {};
};

// Elements of flat memory, from element `begin` on. The parts of x between two multiples of 1024 in flat memory have
// one sum each, from index `sum` on.
struct SquareSumsRun {
  static constexpr int64_t block = 1024;

  Tensor x;
  int64_t begin = 0, sum = 0;
  int64_t count() const { return x.size() == 0 ? 0 : (begin + x.size() - 1) / block - begin / block + 1; }
};

template <class T> struct Descent {
  T scale, decay, rate;
  explicit Descent(const UpdateScalars& s) : scale(T(s.scale)), decay(T(s.decay)), rate(T(s.rate)) {}
  WEFT_HD T gradient(T g, T p) const { return std::fma(decay, p, scale * g); }
  WEFT_HD void operator()(T g, T& p) const { p = std::fma(-rate, gradient(g, p), p); }
};

template <class T> struct Momentum : Descent<T> {
  T momentum;
  bool nesterov;
  explicit Momentum(const UpdateScalars& s) : Descent<T>(s), momentum(T(s.beta1)), nesterov(s.nesterov) {}
  WEFT_HD void operator()(T g, T& p, T& velocity) const {
    g = this->gradient(g, p);
    const T v = std::fma(momentum, velocity, g);
    p = std::fma(-this->rate, nesterov ? std::fma(momentum, v, g) : v, p);
    velocity = v;
  }
};

template <class T> struct AdamUpdate : Descent<T> {
  T shrink, rest1, beta2, rest2, epsilon, root_correction;
  explicit AdamUpdate(const UpdateScalars& s)
      : Descent<T>(s),
        shrink(T(s.shrink)),
        rest1(T(1 - s.beta1)),
        beta2(T(s.beta2)),
        rest2(T(1 - s.beta2)),
        epsilon(T(s.epsilon)),
        root_correction(T(s.root_correction)) {}
  WEFT_HD void moments(T g, T p, T& m, T& v) const {
    g = this->gradient(g, p);
    m = std::fma(rest1, g - m, m);
    v = std::fma(rest2 * g, g, beta2 * v);
  }
  // The caller multiplies by the rate, which includes the correction of the first moment.
  WEFT_HD T direction(T m, T v) const { return m / std::fma(std::sqrt(v), root_correction, epsilon); }
  WEFT_HD void operator()(T g, T& p, T& m, T& v) const {
    moments(g, p, m, v);
    p = std::fma(-this->rate, direction(m, v), shrink * p);
  }
};

// Adam with the largest second moment so far; a NaN stays.
template <class T> struct AmsgradUpdate : AdamUpdate<T> {
  using AdamUpdate<T>::AdamUpdate;
  WEFT_HD void operator()(T g, T& p, T& m, T& v, T& largest) const {
    this->moments(g, p, m, v);
    largest = v <= largest ? largest : v;
    p = std::fma(-this->rate, this->direction(m, largest), this->shrink * p);
  }
};

// Directions are written to the last slot, and the value does not change. Adam's direction includes the rate.
template <class T> struct AdamDirection : AdamUpdate<T> {
  using AdamUpdate<T>::AdamUpdate;
  WEFT_HD void operator()(T g, const T& p, T& m, T& v, T& to) const {
    this->moments(g, p, m, v);
    to = std::fma(this->rate, this->direction(m, v), this->shrink * p);
  }
};

// The momentum is an average here.
template <class T> struct MomentumDirection : Descent<T> {
  T momentum, rest;
  bool nesterov;
  explicit MomentumDirection(const UpdateScalars& s)
      : Descent<T>(s), momentum(T(s.beta1)), rest(T(1 - s.beta1)), nesterov(s.nesterov) {}
  WEFT_HD void operator()(T g, const T& p, T& m, T& to) const {
    g = this->gradient(g, p);
    const T average = std::fma(rest, g - m, m);
    to = nesterov ? std::fma(momentum, average - g, g) : average;
    m = average;
  }
};

template <class T> struct VarianceDirection : Descent<T> {
  T rest, minimum;
  explicit VarianceDirection(const UpdateScalars& s) : Descent<T>(s), rest(T(1 - s.beta2)), minimum(T(s.epsilon)) {}
  WEFT_HD void operator()(T g, const T& p, T& v, T& to) const {
    g = this->gradient(g, p);
    const T average = std::fma(rest, std::fma(g, g, -v), v);
    to = g / std::sqrt(average < minimum ? minimum : average);
    v = average;
  }
};

// Calls f.template operator()<Formula>() with the slots that the formula takes, as pointers.
template <class T, class F> void with_update(UpdateRule rule, std::span<Tensor> slots, F&& f) {
  const auto slot = [&](size_t i) { return slots[i].mutate<T>(); };
  switch (rule) {
    case UpdateRule::descent: return f.template operator()<Descent<T>>();
    case UpdateRule::momentum: return f.template operator()<Momentum<T>>(slot(0));
    case UpdateRule::adam: return f.template operator()<AdamUpdate<T>>(slot(0), slot(1));
    case UpdateRule::amsgrad: return f.template operator()<AmsgradUpdate<T>>(slot(0), slot(1), slot(2));
    case UpdateRule::adam_direction: return f.template operator()<AdamDirection<T>>(slot(0), slot(1), slot(2));
    case UpdateRule::momentum_direction: return f.template operator()<MomentumDirection<T>>(slot(0), slot(1));
    case UpdateRule::variance_direction: return f.template operator()<VarianceDirection<T>>(slot(0), slot(1));
  }
}

}  // namespace weft
