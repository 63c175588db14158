#pragma once
// What one step does to a parameter p with gradient g, for each kind of optimizer. The first three are PyTorch's (SGD,
// Adam and AdamW of torch.optim), number for number. w is the weight decay, t counts a parameter's steps from 1.
//
//   Sgd     g += w p;  v = momentum v + g;  p -= rate v                  nesterov: p -= rate (g + momentum v)
//   Adam    g += w p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//           m' = m / (1 - b1^t);  v' = v / (1 - b2^t);  p -= rate m' / (sqrt(v') + epsilon)
//   AdamW   Adam without w, and p *= 1 - rate w first
//   Lars    Sgd on a (g + w p), a = trust |p| / (|g| + w |p| + epsilon)                       (arXiv 1708.03888)
//   Lamb    r = m' / (sqrt(v') + epsilon) + w p;  p -= rate a r, a = |p| / |r|                (arXiv 1904.00962)
//
// |.| is over the whole parameter; a is 1 where it would have a zero or NaN in it, and where `adapt` is off, as is
// usual for biases and norms. Lars multiplies by the rate outside of the velocity, as PyTorch's SGD does.
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
};
struct AdamW {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
};
struct Lars {
  double momentum = 0.9, weight_decay = 0, trust = 0.001, epsilon = 1e-8;
  bool adapt = true;
};
struct Lamb {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0.01;
  bool adapt = true;
};
using Rule = std::variant<Sgd, Adam, AdamW, Lars, Lamb>;

// What the kernels need of a rule at one step; `gradient_scale` is folded into the update.
struct StepPoint {
  int64_t step = 1;  // this one's number
  double rate = 0, gradient_scale = 1;
  double value_norm = 0, gradient_norm = 0;  // of Lars; the latter of the gradient before it is scaled
};

void check(const Rule& rule);  // Error if a number is impossible
std::string name(const Rule& rule);
std::vector<std::string> slots(const Rule& rule);  // the names of what it keeps for each element
UpdateRule kernel(const Rule& rule);
UpdateScalars scalars(const Rule& rule, const StepPoint& point);
bool adapts(const Rule& rule);
double lamb_ratio(double value_norm, double direction_norm);

}  // namespace weft
