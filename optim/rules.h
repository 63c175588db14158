#pragma once
// What one step does to a parameter p with gradient g, for each kind of optimizer. All but Lars and Lamb are PyTorch's
// (torch.optim), number for number. w is the weight decay, t counts a parameter's steps from 1.
//
//   Sgd     g += w p;  v = momentum v + g;  p -= rate v                  nesterov: p -= rate (g + momentum v)
//   Adam    g += w p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//           m' = m / (1 - b1^t);  v' = v / (1 - b2^t);  p -= rate m' / (sqrt(v') + epsilon)
//           amsgrad: the largest v so far instead of v                                        (arXiv 1904.09237)
//   AdamW   Adam without w, and p *= 1 - rate w first
//   Lars    Sgd on a (g + w p), a = trust |p| / (|g| + w |p| + epsilon)                       (arXiv 1708.03888)
//   Lamb    r = m' / (sqrt(v') + epsilon) + w p;  p -= rate a r, a = |p| / |r|                (arXiv 1904.00962)
//   Muon    m += (1 - momentum) (g - m);  p *= 1 - rate w;  p -= rate a O(m)   nesterov: O(g + momentum (m - g))
//           O: the nearest matrix with orthogonal rows or columns, nearly; of matrices only  (arXiv 2502.16982)
//   Adafactor  R, C: averages of the means of g^2 over the rows and columns of a matrix, V = R C' / mean(R);
//           for a vector V: that of g^2;  u = g / sqrt(V);  p *= 1 - rate w
//           p -= min(rate, 1 / sqrt(t)) max(epsilon2, rms(p)) u / max(1, rms(u) / d)         (arXiv 1804.04235)
//
// |.| is over the whole parameter; a of Lars and Lamb is 1 where it would have a zero or NaN in it, and where `adapt`
// is off, as is usual for biases and norms. Lars multiplies by the rate outside of the velocity, as PyTorch's SGD does.
#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/update.h"

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
// A matrix has its outputs along the last axis and its inputs along the others, as the weights of Linear and Conv2d.
struct Muon {
  enum class Adjust : uint8_t {
    original,           // a = sqrt(max(1, outputs / inputs))
    match_rms_adamw,    // a = 0.2 sqrt(max(outputs, inputs)): rates and decays of AdamW serve
    spectral_unclamped  // a = sqrt(outputs / inputs)
  };
  double momentum = 0.95, weight_decay = 0.1;
  bool nesterov = true;
  Adjust adjust = Adjust::original;
  int iterations = 5;  // of Newton and Schulz, x = a x + (b x x' + c (x x')^2) x from x / |x|
  std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315};
  double epsilon = 1e-7;  // the least |x|
  bool in_bf16 = false;   // the iterations, as PyTorch always does: faster on cards. Else in the type of the values
};
struct Adafactor {
  double beta2_decay = -0.8;             // the averages' weight of what is new is t^beta2_decay
  double epsilon1 = 0, epsilon2 = 1e-3;  // of the roots, 0: as the type of the values has it; the least rms(p)
  double d = 1, weight_decay = 0;
};
using Rule = std::variant<Sgd, Adam, AdamW, Lars, Lamb, Muon, Adafactor>;

// What the numbers of a step depend on; `gradient_scale` is folded into the update. Norms are over the whole parameter,
// before the step: that of the values, and that of the direction or, where there is none, of the unscaled gradient.
struct StepPoint {
  int64_t step = 1;  // this one's number
  double rate = 0, gradient_scale = 1;
  double value_norm = 0, direction_norm = 0;
  Shape shape = {};          // of the whole parameter
  DType dtype = DType::f32;  // of the values that are updated
};

void check(const Rule& rule);                                                    // Error if a number is impossible
void check(const Rule& rule, const Shape& shape, const std::string& parameter);  // or if it is not for such parameters
std::string name(const Rule& rule);
std::vector<std::string> slots(const Rule& rule, const Shape& shape);  // the names of what it keeps for each element
bool needs_whole(const Rule& rule, const Shape& shape);                // all of a parameter at once, on one rank
bool factors(const Rule& rule, const Shape& shape);  // keeps values for rows and columns instead of elements
bool adapts(const Rule& rule);                       // needs norms

// A step is one update of every element; or a direction, which this kernel writes to one slot more, and descent by it.
std::optional<UpdateRule> direction_kernel(const Rule& rule);
UpdateRule kernel(const Rule& rule);
UpdateScalars direction_scalars(const Rule& rule, const StepPoint& point);
UpdateScalars scalars(const Rule& rule, const StepPoint& point);

}  // namespace weft
