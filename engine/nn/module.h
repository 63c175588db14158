// SPDX-License-Identifier: Apache-2.0
#pragma once
// The base classes of networks, which list their parameters, and of layers, which are called.
//
//   struct Encoder : Module {
//     Conv2d image;
//     Linear code;
//     explicit Encoder(const Init& init) : image("image", 1, 32, {3, 3}, init), code("code", 32, 64, init) {
//       register_module(image);
//       register_module(code);
//     }
//     Var operator()(const Var& x, const Pass& pass) { ... }
//   };
//
// Parameters are members of their layer, named by dotted paths such as "encoder.2.weight".
#include <vector>

#include "weft/engine/tape/tape.h"

namespace weft {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // not movable either, because a parameter's address is its identity
  Module& operator=(const Module&) = delete;

  std::vector<Parameter*> parameters() const;  // trained by optimizers
  std::vector<Parameter*> buffers() const;     // not trained, but in checkpoints, such as running averages

 protected:
  void register_module(Module& child) { parts_.push_back({&child, nullptr, Role::parameter}); }
  void register_parameter(Parameter& parameter) { parts_.push_back({nullptr, &parameter, Role::parameter}); }
  void register_buffer(Parameter& buffer) { parts_.push_back({nullptr, &buffer, Role::buffer}); }

 private:
  enum class Role : uint8_t { parameter, buffer };
  struct Part {
    const Module* child;  // null if `tensor` is not
    Parameter* tensor;
    Role role;
  };
  void list(Role role, std::vector<Parameter*>& all) const;

  std::vector<Part> parts_;
};

// The settings of a forward pass. Random layers draw from the key by the global index of the sample, so that a batch
// gives the same result for every division among ranks.
struct Pass {
  bool training = false;
  Random key = {};
  int64_t first_sample = 0;  // the global index of the batch's first row
};

// A module from one tensor to one tensor. In training, a call may change its buffers.
class Layer : public Module {
 public:
  Var operator()(const Var& x, const Pass& pass = {}) { return apply(x, pass); }

 private:
  virtual Var apply(const Var& x, const Pass& pass) = 0;
};

// The parameter as a Var for an op on x: watched if x is on a tape, otherwise a constant. Empty for an undefined
// parameter, such as a bias that is left out.
Var bind(const Var& x, const Parameter& parameter);

}  // namespace weft
