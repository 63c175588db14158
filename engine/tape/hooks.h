// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions that are called at an event, in the order in which they were added.
//
//   HookHandle handle = gradients.after_accumulate([](const Parameter& p, const Tensor& sum) { ... });
//   ...
//   handle.remove();
//
// A hook may add hooks, and remove hooks, even itself. Hooks that it adds are called from the next event on; hooks that
// it removes are not called any more.
#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

namespace weft {

// Removes one hook. It may outlive the list of hooks. Destroying it does not remove the hook.
class HookHandle {
 public:
  HookHandle() = default;
  void remove() {
    if (const std::shared_ptr<bool> active = active_.lock()) *active = false;
  }

 private:
  template <class... Args> friend class Hooks;
  explicit HookHandle(std::weak_ptr<bool> active) : active_(std::move(active)) {}
  std::weak_ptr<bool> active_;
};

template <class... Args> class Hooks {
 public:
  using Function = std::function<void(Args...)>;

  HookHandle add(Function function) {
    auto list = std::make_shared<List>();
    if (list_)
      std::copy_if(list_->begin(), list_->end(), std::back_inserter(*list),
                   [](const auto& hook) { return hook->active; });
    const auto hook = std::make_shared<Hook>(Hook{true, std::move(function)});
    list->push_back(hook);
    list_ = std::move(list);
    return HookHandle(std::shared_ptr<bool>(hook, &hook->active));
  }
  bool empty() const {
    return !list_ || std::none_of(list_->begin(), list_->end(), [](const auto& hook) { return hook->active; });
  }
  void operator()(Args... args) const {
    if (const auto list = list_)  // a hook that adds another replaces list_, but not this list
      for (const auto& hook : *list)
        if (hook->active) hook->function(args...);
  }

 private:
  struct Hook {
    bool active;
    Function function;
  };
  using List = std::vector<std::shared_ptr<Hook>>;
  std::shared_ptr<const List> list_;
};

}  // namespace weft
