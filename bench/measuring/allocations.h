// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counts this program's calls of the system's allocator. allocations.cpp replaces malloc and its variants, which
// operator new calls, too.
#include <cstdint>
#include <string>

namespace weft::bench {

class CountAllocations {
 public:
  CountAllocations();  // starts to count this thread's calls
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;

  int64_t stop();              // stops, and returns the number of calls
  static std::string first();  // the stack of the first call, innermost function first
};

}  // namespace weft::bench
