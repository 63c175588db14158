// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/null_card.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <mutex>
#include <utility>

namespace weft::emulated {
namespace {

constexpr std::array names = {"launches", "products",  "graphs",        "waits",
                              "uploads",  "downloads", "device copies", "allocations"};

class Requests {
 public:
  explicit Requests(const char* file) : file_(file) {}
  ~Requests() {
    std::ofstream to(file_);
    to << "{";
    for (size_t i = 0; i < names.size(); ++i) to << "\"" << names[i] << "\": " << counts_[i] << ", ";
    to << "\"kernels\": {";
    for (const char* between = ""; const auto& [kernel, launches] : kernels_)
      to << std::exchange(between, ", ") << std::quoted(kernel) << ": " << launches;
    to << "}}\n";
  }
  void add(Asked what, const std::string& kernel = {}) {
    const std::lock_guard lock(mutex_);
    ++counts_[static_cast<size_t>(what)];
    if (!kernel.empty()) ++kernels_[kernel];
  }

 private:
  const char* const file_;
  std::mutex mutex_;
  std::array<int64_t, names.size()> counts_ = {};
  std::map<std::string, int64_t> kernels_;
};

}  // namespace

bool null_card() {
  static const bool is_null = std::getenv("WEFT_NULL_CARD") != nullptr;
  return is_null;
}

static void add(Asked what, const std::string& kernel = {}) {
  if (!null_card()) return;
  static Requests requests(std::getenv("WEFT_NULL_CARD"));
  requests.add(what, kernel);
}
void count(Asked what) { add(what); }
void count_launch(const std::string& kernel) { add(Asked::launch, kernel); }

}  // namespace weft::emulated
