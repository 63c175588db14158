// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is learnt from two views of each picture, by its name in --method. A method's parameters and buffers are part of
// the network: predictors, prototypes, banks, and a teacher, whose weights follow those of the network.
#include <functional>
#include <memory>

#include "apps/shared/launch/options.h"
#include "weft/engine/nn/sequential.h"
#include "weft/optim/accumulate/cached.h"

namespace weft {

struct MethodChoice {
  std::string name = "pairs";
  std::string loss = "nt-xent";  // of pairs
  double temperature = 0.1;
  double momentum = 0.99;    // of the teacher: what it keeps of its weights in each step
  int64_t bank = 4096;       // keys of moco
  int64_t prototypes = 300;  // of swav and dino

  std::string in_short() const { return name == "pairs" ? loss : name; }
};

class Method : public Module {
 public:
  using Network = std::function<Var(const Var& view)>;  // which is trained

  // What the loss takes, of two views of some samples and, if the method uses them, their labels.
  virtual Features features(const Var& first, const Var& second, const Tensor& labels, const Network& network) = 0;
  // This rank's share of the loss of the samples of the group. Outside of training, nothing is kept for `after_step`.
  virtual Var share(const Features& features, const Pass& pass, Communicator& group) = 0;
  virtual void after_step() {}
};
std::vector<std::string> names_of_methods();

// The network that is trained, whose features the loss compares. `another` makes one with the same parameters, in the
// same order, by other names.
struct Trained {
  std::vector<Parameter*> parameters;
  std::function<std::unique_ptr<Sequential>(const std::string& name)> another;
  int64_t width, classes;
};
std::unique_ptr<Method> make_method(const MethodChoice& choice, const Trained& trained, const Init& init);

// WrongOption if the options divide parameters that the method needs whole, or round those that it averages, or if it
// needs classes and there are none.
void check_method(const MethodChoice& choice, const Options& options, bool labelled);

}  // namespace weft
