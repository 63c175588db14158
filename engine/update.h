#pragma once
// What a step of an optimizer does to one element: each formula once, for CPU and CUDA, as with scalar_ops.h. The
// policies behind the numbers (bias corrections, groups, adapted rates) are optim/'s.
//
// Every multiply-add is spelled std::fma, so that an element gets the same bits wherever it stands in a run and however
// the memory is divided. A zero gradient of a zero value with zero slots leaves all of them zero.
#include <cmath>
#include <span>

#include "engine/tensor.h"

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
  double shrink = 1;  // adam: p = shrink p - rate direction; adam_direction: the direction has shrink p more
  double rate = 0;    // with adam's correction of the first moment
  double beta1 = 0;   // or the momentum
  double beta2 = 0;
  double epsilon = 0;          // variance_direction: the least second moment
  double root_correction = 1;  // of the root of the second moment
  bool nesterov = false;
  bool operator==(const UpdateScalars&) const = default;
};

// Consecutive elements that a step treats alike, from `first` on in the memory that is updated.
struct UpdateRun {
  Tensor gradient;
  int64_t first = 0;
  UpdateScalars scalars = {};
};

// x's first element is number `begin` in flat memory. Each part of x that lies between two multiples of 1024 there has
// a sum of its own, the first of them at place `sum`.
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
  // The corrected first moment's rate is left to the caller.
  WEFT_HD T direction(T m, T v) const { return m / std::fma(std::sqrt(v), root_correction, epsilon); }
  WEFT_HD void operator()(T g, T& p, T& m, T& v) const {
    moments(g, p, m, v);
    p = std::fma(-this->rate, direction(m, v), shrink * p);
  }
};

// By the largest second moment so far; NaN stays.
template <class T> struct AmsgradUpdate : AdamUpdate<T> {
  using AdamUpdate<T>::AdamUpdate;
  WEFT_HD void operator()(T g, T& p, T& m, T& v, T& largest) const {
    this->moments(g, p, m, v);
    largest = v <= largest ? largest : v;
    p = std::fma(-this->rate, this->direction(m, largest), this->shrink * p);
  }
};

// Directions are written to the last slot; the value stays. That of Adam has its rate in it.
template <class T> struct AdamDirection : AdamUpdate<T> {
  using AdamUpdate<T>::AdamUpdate;
  WEFT_HD void operator()(T g, const T& p, T& m, T& v, T& to) const {
    this->moments(g, p, m, v);
    to = std::fma(this->rate, this->direction(m, v), this->shrink * p);
  }
};

// The momentum as an average.
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
  T rest, least;
  explicit VarianceDirection(const UpdateScalars& s) : Descent<T>(s), rest(T(1 - s.beta2)), least(T(s.epsilon)) {}
  WEFT_HD void operator()(T g, const T& p, T& v, T& to) const {
    g = this->gradient(g, p);
    const T average = std::fma(rest, std::fma(g, g, -v), v);
    to = g / std::sqrt(average < least ? least : average);
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
