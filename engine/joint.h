#pragma once
// For an op whose kernels find the gradients of several inputs at once, where the tape asks for them one by one.
//
//   struct Rule {
//     std::array<Tensor, 2> together(const Tensor& g) const;  // by kernels; undefined for an input without gradient
//     Var apart(size_t input, const Var& g) const;            // one of them, of differentiable ops
//   };
//   const Joint joint(Rule{...});
//   return record(op, y, from(a, joint.part(0)), from(b, joint.part(1)));
//
// `together` runs when a walk asks for the first of them; the others wait to be asked for, in the order of their
// numbers, and are dropped as they are handed out or passed over. What a query did not ask for at the end is kept until
// the next walk. Where gradients are to be differentiated in turn (Graph::create) each is made by `apart` instead.
#include <memory>

#include "engine/tape.h"

namespace weft {

template <class Rule> class Joint {
 public:
  explicit Joint(Rule rule) : shared_(std::allocate_shared<Shared>(pool::Allocator<Shared>(), std::move(rule))) {}

  auto part(size_t input) const {
    return [shared = shared_, input](const Var& g) -> Var {
      const bool recording = g.tape() && g.tape()->follows_spreads();
      return recording ? shared->rule.apart(input, g) : Var(shared->take(input, g.value()));
    };
  }

 private:
  struct Shared {
    const Rule rule;
    Tensor g;  // what the results below belong to; held, so that no other can have its address
    uint32_t version = 0;
    decltype(rule.together(g)) results = {};

    explicit Shared(Rule&& rule) : rule(std::move(rule)) {}

    Tensor take(size_t input, const Tensor& cotangent) {
      const bool known = results[input].defined() && g.data() == cotangent.data() && version == cotangent.version();
      if (!known) {
        results = {};
        results = rule.together(cotangent);
        g = cotangent;
        version = g.version();
      }
      Tensor result = std::move(results[input]);
      bool more = false;
      for (size_t i = 0; i < results.size(); ++i) {
        if (i <= input) results[i] = {};
        more = more || results[i].defined();
      }
      if (!more) g = {};
      return result;
    }
  };

  std::shared_ptr<Shared> shared_;
};

}  // namespace weft
