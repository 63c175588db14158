// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/modules.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/stream.h"

namespace weft::emulated {
namespace {

struct Context {
  std::mutex lock;
  std::set<const void*> loaded;
};
Context& context(int card) {
  static Context* const all = new Context[cards];
  return all[card];
}

bool loads_lazily() {
  static const bool lazily = [] {
    const char* const chosen = std::getenv("CUDA_MODULE_LOADING");
    return !chosen || std::string_view(chosen) != "EAGER";
  }();
  return lazily;
}

}  // namespace

void read_module_loading() { loads_lazily(); }

void load_kernel(int card, const void* kernel) {
  const std::lock_guard held(context(card).lock);
  if (loads_lazily() && context(card).loaded.insert(kernel).second) Stream::await_all_of(card);
}

void enter_context(int card) { const std::lock_guard held(context(card).lock); }

}  // namespace weft::emulated
