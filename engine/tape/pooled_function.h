// SPDX-License-Identifier: Apache-2.0
#pragma once
// A std::function in pool memory, for callables that a tape records in every step. Copies share the callable.
#include <memory>
#include <type_traits>

#include "weft/engine/tensor/pool.h"

namespace weft {

template <class Signature> class PooledFunction;
template <class Result, class... Arguments> class PooledFunction<Result(Arguments...)> {
 public:
  template <class F>
  requires(!std::is_same_v<F, PooledFunction> && std::is_invocable_r_v<Result, F&, Arguments...>) PooledFunction(F f)
      : target_(std::allocate_shared<Holder<F>>(pool::Allocator<Holder<F>>(), std::move(f))) {}

  Result operator()(Arguments... arguments) const { return target_->call(std::forward<Arguments>(arguments)...); }

 private:
  struct Target {
    virtual ~Target() = default;
    virtual Result call(Arguments... arguments) = 0;
  };
  template <class F> struct Holder final : Target {
    F f;
    explicit Holder(F&& f) : f(std::move(f)) {}
    Result call(Arguments... arguments) override { return f(std::forward<Arguments>(arguments)...); }
  };
  std::shared_ptr<Target> target_;
};

}  // namespace weft
