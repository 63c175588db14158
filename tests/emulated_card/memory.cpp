#include "tests/emulated_card/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace weft::emulated {
namespace {

constexpr size_t granule = 4096;

// Never destroyed: tensors come back while the program ends.
struct Memory {
  std::mutex mutex;
  char* const base =
      static_cast<char*>(mmap(nullptr, card_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  std::map<char*, size_t> taken, pinned;  // pieces in order, with their bytes
  size_t free = card_bytes, used_up_to = 0;
  int at_work = 0;

  Memory() { madvise(base, card_bytes, MADV_HUGEPAGE); }  // else `protect` takes its time
  void protect(int access) { mprotect(base, used_up_to, access); }

  // The first gap that is large enough.
  char* gap(size_t bytes) const {
    char* place = base;
    for (const auto& [first, size] : taken) {
      if (static_cast<size_t>(first - place) >= bytes) return place;
      place = first + size;
    }
    return static_cast<size_t>(base + card_bytes - place) >= bytes ? place : nullptr;
  }
  static bool within(const std::map<char*, size_t>& pieces, const void* first, size_t bytes) {
    const char* const from = static_cast<const char*>(first);
    auto next = pieces.upper_bound(const_cast<char*>(from));
    return next != pieces.begin() && (--next, from + bytes <= next->first + next->second);
  }
};
Memory& memory() {
  static Memory& instance = *new Memory;
  return instance;
}

}  // namespace

Access::Access() {
  const std::lock_guard lock(memory().mutex);
  if (memory().at_work++ == 0) memory().protect(PROT_READ | PROT_WRITE);
}
Access::~Access() {
  const std::lock_guard lock(memory().mutex);
  if (--memory().at_work == 0) memory().protect(PROT_NONE);
}

void* take_memory(size_t bytes) {
  const size_t whole = (bytes + granule - 1) / granule * granule;
  char* piece = nullptr;
  {
    const std::lock_guard lock(memory().mutex);
    Memory& all = memory();
    if (whole < bytes || !(piece = all.gap(whole))) return nullptr;
    all.taken.emplace(piece, whole);
    all.free -= whole;
    all.used_up_to = std::max(all.used_up_to, static_cast<size_t>(piece - all.base) + whole);
    if (all.at_work > 0) all.protect(PROT_READ | PROT_WRITE);
  }
  const Access access;
  std::memset(piece, 0xff, whole);
  return piece;
}

bool give_memory(void* piece) {
  const std::lock_guard lock(memory().mutex);
  const auto at = memory().taken.find(static_cast<char*>(piece));
  if (at == memory().taken.end()) return false;
  madvise(piece, at->second, MADV_DONTNEED);
  memory().free += at->second;
  memory().taken.erase(at);
  return true;
}

size_t free_memory() {
  const std::lock_guard lock(memory().mutex);
  return memory().free;
}

bool on_card(const void* first, size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  return Memory::within(memory().taken, first, bytes);
}

void* take_pinned(size_t bytes) {
  void* const piece = std::aligned_alloc(granule, (bytes + granule - 1) / granule * granule);
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(static_cast<char*>(piece), bytes);
  return piece;
}

bool is_pinned(const void* place) {
  const std::lock_guard lock(memory().mutex);
  return Memory::within(memory().pinned, place, 1);
}

}  // namespace weft::emulated
