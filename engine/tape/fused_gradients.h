// SPDX-License-Identifier: Apache-2.0
#pragma once
// For an op whose kernels compute the gradients of several inputs at once, while the tape requests them one by one.
//
//   struct Rule {
//     std::array<Tensor, 2> fused(const Tensor& g) const;  // by kernels; undefined for an input without gradient
//     Var composed(size_t input, const Var& g) const;            // one of them, of differentiable ops
//   };
//   const FusedGradients fused(Rule{...});
//   return record(op, y, from(a, fused.part(0)), from(b, fused.part(1)));
//
// `fused` runs when a walk requests the first of the gradients. The others are kept until the walk requests them, in
// the order of the inputs; those before the one requested are freed. Gradients that a query does not request at the end
// are kept until the next walk. If gradients are to be differentiated again (Graph::create), `composed` computes each.
#include <memory>

#include "weft/engine/tape/tape.h"

namespace weft {

template <class Rule> class FusedGradients {
 public:
  explicit FusedGradients(Rule rule)
      : shared_(std::allocate_shared<Shared>(pool::Allocator<Shared>(), std::move(rule))) {}

  auto part(size_t input) const {
    return [shared = shared_, input](const Var& g) -> Var {
      const bool recording = g.tape() && g.tape()->follows_placements();
      return recording ? shared->rule.composed(input, g) : Var(shared->take(input, g.value()));
    };
  }

 private:
  struct Shared {
    const Rule rule;
    Tensor g;  // the cotangent of the results below; kept, so that no other tensor can have its address
    uint32_t version = 0;
    decltype(rule.fused(g)) results = {};

    explicit Shared(Rule&& rule) : rule(std::move(rule)) {}

    Tensor take(size_t input, const Tensor& cotangent) {
      const bool known = results[input].defined() && g.data() == cotangent.data() && version == cotangent.version();
      if (!known) {
        results = {};
        results = rule.fused(cotangent);
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
