#pragma once
// Counts what this program asks of the system's allocator: allocations.cpp stands between the C library and everyone
// who calls malloc, operator new included.
#include <cstdint>
#include <string>

namespace weft::bench {

class CountAllocations {
 public:
  CountAllocations();  // from here on, this thread's calls are counted
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;

  int64_t stop();              // how many there were
  static std::string first();  // who made the first one, innermost caller first
};

}  // namespace weft::bench
