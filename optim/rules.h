// SPDX-License-Identifier: Apache-2.0
#pragma once
// The update rules: how one step changes a parameter p with gradient g. All but Lars and Lamb give the same numbers as
// PyTorch's torch.optim. w is the weight decay; t counts the steps of a parameter from 1.
//
//   Sgd     g += w p;  v = momentum v + g;  p -= rate v                  nesterov: p -= rate (g + momentum v)
//   Adam    g += w p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//           m' = m / (1 - b1^t);  v' = v / (1 - b2^t);  p -= rate m' / (sqrt(v') + epsilon)
//           amsgrad: the largest v so far instead of v                                        (arXiv 1904.09237)
//   AdamW   Adam without w, and p *= 1 - rate w first
//   Lars    Sgd on a (g + w p), a = trust |p| / (|g| + w |p| + epsilon)                       (arXiv 1708.03888)
//   Lamb    r = m' / (sqrt(v') + epsilon) + w p;  p -= rate a r, a = |p| / |r|                (arXiv 1904.00962)
//   Muon    m += (1 - momentum) (g - m);  p *= 1 - rate w;  p -= rate a O(m)   nesterov: O(g + momentum (m - g))
//           O: approximately the nearest matrix with orthogonal rows or columns; matrices only  (arXiv 2502.16982)
//   Adafactor  R, C: averages of the means of g^2 over the rows and columns of a matrix, V = R C' / mean(R);
//           for a vector, V is the average of g^2;  u = g / sqrt(V);  p *= 1 - rate w
//           p -= min(rate, 1 / sqrt(t)) max(epsilon2, rms(p)) u / max(1, rms(u) / d)         (arXiv 1804.04235)
//
// |.| is the norm of the whole parameter. The factor a of Lars and Lamb is 1 if one of its norms is zero or NaN, and if
// `adapt` is off, as is usual for biases and norms. Lars multiplies the velocity by the rate, as PyTorch's SGD does.
#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weft/engine/kernels/update_formulas.h"

namespace weft {

struct Sgd {
  double momentum = 0, weight_decay = 0;
  bool nesterov = false;
};
struct Adam {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  bool amsgrad = false;
};
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
  bool amsgrad = false;
};
struct Lars {
  double momentum = 0.9, weight_decay = 0, trust = 0.001, epsilon = 1e-8;
  bool adapt = true;
};
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0.01;
  bool adapt = true;
};
// The last axis of a matrix is its outputs, the others are its inputs, as in the weights of Linear and Conv2d.
struct Muon {
  enum class Adjust : uint8_t {
    original,           // a = sqrt(max(1, outputs / inputs))
    match_rms_adamw,    // a = 0.2 sqrt(max(outputs, inputs)): AdamW's rates and weight decays can be used
    spectral_unclamped  // a = sqrt(outputs / inputs)
  };
  double momentum = 0.95, weight_decay = 0.1;
  bool nesterov = true;
  Adjust adjust = Adjust::original;
  int iterations = 5;  // of Newton and Schulz, x = a x + (b x x' + c (x x')^2) x from x / |x|
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  double epsilon = 1e-7;  // the smallest |x| to divide by
  bool in_bf16 = false;   // iterate in bf16, as PyTorch does: faster on cards. Otherwise in the type of the values
};
struct Adafactor {
  double beta2_decay = -0.8;             // averages give the new value the weight t^beta2_decay
  double epsilon1 = 0, epsilon2 = 1e-3;  // the smallest root of V (0: the machine epsilon), the smallest rms(p)
  double d = 1, weight_decay = 0;
};
using Rule = std::variant<Sgd, Adam, AdamW, Lars, Lamb, Muon, Adafactor>;

// The quantities on which the scalars of a step depend. Norms are of the whole parameter before the step: of its
// values, and of the direction or, for rules without one, of the gradient before `gradient_scale` is applied.
struct StepPoint {
  int64_t step = 1;  // the number of this step
  double rate = 0, gradient_scale = 1;
  double value_norm = 0, direction_norm = 0;
  Shape shape = {};          // of the whole parameter
  DType dtype = DType::f32;  // of the updated values
};

void check(const Rule& rule);  // Error if an option is out of range
void check(const Rule& rule, const Shape& shape,
           const std::string& parameter);  // Error if the rule needs another shape
std::string name(const Rule& rule);
std::vector<std::string> slots(const Rule& rule, const Shape& shape);  // the names of the state kept per element
bool needs_whole(const Rule& rule, const Shape& shape);  // whether one rank needs the whole parameter for a step
bool factors(const Rule& rule, const Shape& shape);      // whether state is kept per row and column, not per element
bool adapts(const Rule& rule);                           // whether a step needs norms

// A step is either one kernel over all elements, or two: `direction_kernel` writes a direction to an additional slot,
// and descent follows it.
std::optional<UpdateRule> direction_kernel(const Rule& rule);
UpdateRule kernel(const Rule& rule);
UpdateScalars direction_scalars(const Rule& rule, const StepPoint& point);
UpdateScalars scalars(const Rule& rule, const StepPoint& point);

}  // namespace weft
