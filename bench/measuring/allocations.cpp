// SPDX-License-Identifier: Apache-2.0
#include "bench/measuring/allocations.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>

namespace weft::bench {
namespace {

constexpr int depth = 24;
constinit thread_local bool counting = false;
int64_t count = 0;
void* frames[depth];
int frames_used = 0;

void note() {
  if (!counting) return;
  counting = false;  // backtrace may allocate
  if (++count == 1) frames_used = backtrace(frames, depth);
  counting = true;
}

std::string name_of(void* address) {
  Dl_info info{};
  if (!dladdr(address, &info) || !info.dli_sname) return fmt::format("{}", address);
  int status = 0;
  char* plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  const std::string result = status == 0 ? plain : info.dli_sname;
  std::free(plain);
  return result;
}

}  // namespace

CountAllocations::CountAllocations() {
  void* warm_up[1];
  backtrace(warm_up, 1);  // the first call loads a library, which allocates
  count = 0;
  counting = true;
}
CountAllocations::~CountAllocations() { counting = false; }

int64_t CountAllocations::stop() {
  counting = false;
  return count;
}

std::string CountAllocations::first() {
  std::string result;
  for (int i = 2; i < frames_used; ++i) result += "\n    " + name_of(frames[i]);
  return result;
}

}  // namespace weft::bench

// glibc provides its allocator under these names to programs that replace the public ones, as this file does.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  weft::bench::note();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  weft::bench::note();
  return __libc_calloc(count, bytes);
}
void* realloc(void* block, size_t bytes) {
  weft::bench::note();
  return __libc_realloc(block, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  weft::bench::note();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block ? 0 : ENOMEM;
}
}
