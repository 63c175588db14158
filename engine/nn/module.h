#pragma once
// How a network lists what it is made of, and how its layers are called.
//
//   struct Encoder : Module {
//     Conv2d image;
//     Linear code;
//     explicit Encoder(const Init& init) : image("image", 1, 32, {3, 3}, init), code("code", 32, 64, init) {
//       has(image);
//       has(code);
//     }
//     Var operator()(const Var& x, const Pass& pass) { ... }
//   };
//
// Parameters are members of their layer, named by dotted paths such as "encoder.2.weight".
#include <vector>

#include "engine/tape.h"

namespace weft {

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // nor moved: a parameter's address is its identity
  Module& operator=(const Module&) = delete;

  std::vector<Parameter*> parameters() const;  // what is trained
  std::vector<Parameter*> buffers() const;     // what a checkpoint must hold besides, such as running averages

 protected:
  void has(Module& child) { parts_.push_back({&child, nullptr, Role::parameter}); }
  void has(Parameter& parameter) { parts_.push_back({nullptr, &parameter, Role::parameter}); }
  void has_buffer(Parameter& buffer) { parts_.push_back({nullptr, &buffer, Role::buffer}); }

 private:
  enum class Role : uint8_t { parameter, buffer };
  struct Part {
    const Module* child;  // or else
    Parameter* tensor;
    Role role;
  };
  void list(Role role, std::vector<Parameter*>& all) const;

  std::vector<Part> parts_;
};

// What a forward pass is for. Random layers draw from the key, by the global number of the sample, so that a batch
// gives the same result however it is divided among ranks.
struct Pass {
  bool training = false;
  Random key = {};
  int64_t first_sample = 0;  // the global number of the batch's first row
};

// A module from one tensor to one tensor. In training, a call may change its buffers.
class Layer : public Module {
 public:
  Var operator()(const Var& x, const Pass& pass = {}) { return apply(x, pass); }

 private:
  virtual Var apply(const Var& x, const Pass& pass) = 0;
};

// The parameter as a Var beside x: watched if x is on a tape, else a constant. Empty for a parameter left out.
Var use(const Var& x, const Parameter& parameter);

}  // namespace weft
