// SPDX-License-Identifier: Apache-2.0
#pragma once
// A reference to a callable, valid for the duration of a call. Passing a lambda allocates nothing.
#include <functional>
#include <memory>

namespace weft {

template <class Signature> class FunctionRef;
template <class Result, class... Arguments> class FunctionRef<Result(Arguments...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<Result, F&, Arguments...>)
      FunctionRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        invoke_([](void* object, Arguments... arguments) {
          return static_cast<Result>((*static_cast<std::remove_reference_t<F>*>(object))(arguments...));
        }) {}
  Result operator()(Arguments... arguments) const { return invoke_(object_, arguments...); }

 private:
  void* object_;
  Result (*invoke_)(void*, Arguments...);
};

}  // namespace weft
