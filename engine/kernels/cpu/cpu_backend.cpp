// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cpu/cpu_backend.h"

#include <cstring>
#include <fstream>
#include <new>

namespace weft {
namespace {

constexpr size_t header = 64;  // a pool block holds the Storage, and the values from the next cache line on
static_assert(sizeof(Storage) <= header);

void release(Storage* storage) { pool::give(storage, header + storage->bytes); }

}  // namespace

std::string CpuBackend::description() const {
  std::ifstream information("/proc/cpuinfo");
  for (std::string line; std::getline(information, line);)
    if (line.starts_with("model name")) return "one thread per rank of " + line.substr(line.find(':') + 2);
  return "one thread per rank";
}

Storage* CpuBackend::allocate(size_t bytes) {
  char* block = static_cast<char*>(pool::take(header + bytes));
  return new (block) Storage(block + header, bytes, Device::cpu, release);
}

void CpuBackend::copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

void CpuBackend::mark_difference(const Tensor& a, const Tensor& b, Tensor& y) {
  if (a.bytes() > 0 && std::memcmp(a.data(), b.data(), a.bytes()) != 0) *y.mutate<uint8_t>() = 1;
}

}  // namespace weft
