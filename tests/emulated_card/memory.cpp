// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/memory.h"

#include <sys/mman.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "tests/emulated_card/null_card.h"

namespace weft::emulated {
namespace {

constexpr size_t granule = 4096;

using Pieces = std::map<char*, size_t>;  // in order, with their bytes

bool within(const Pieces& pieces, const void* first, size_t bytes) {
  const char* const from = static_cast<const char*>(first);
  auto next = pieces.upper_bound(const_cast<char*>(from));
  return next != pieces.begin() && (--next, from + bytes <= next->first + next->second);
}

struct Card {
  char* const base =
      static_cast<char*>(mmap(nullptr, card_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  Pieces taken;
  size_t free = card_bytes, used_up_to = 0;

  Card() { madvise(base, card_bytes, MADV_HUGEPAGE); }  // else `protect` is slow
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
};

// Never destroyed, because tensors are freed while the program ends.
struct Memory {
  std::mutex mutex;
  std::condition_variable closed;
  Card all[cards];
  Pieces pinned;
  int open = no_card, at_work = 0;  // the card whose memory is accessible, and the number of its users

  bool is_open(int card) const { return at_work > 0 && (open == card || open == every_card); }
  void protect(int access) {
    for (int card = 0; card < cards; ++card)
      if (is_open(card)) all[card].protect(access);
  }
};
Memory& memory() {
  static Memory& instance = *new Memory;
  return instance;
}

}  // namespace

constinit thread_local int current_card = 0;

Access::Access(int card) {
  std::unique_lock lock(memory().mutex);
  memory().closed.wait(lock, [&] { return memory().at_work == 0 || memory().open == card; });
  memory().open = card;
  if (memory().at_work++ == 0) memory().protect(PROT_READ | PROT_WRITE);
}
Access::~Access() {
  const std::lock_guard lock(memory().mutex);
  if (memory().at_work == 1) memory().protect(PROT_NONE);
  if (--memory().at_work == 0) memory().closed.notify_all();
}

void* take_memory(int number, size_t bytes) {
  const size_t whole = (bytes + granule - 1) / granule * granule;
  char* piece = nullptr;
  {
    const std::lock_guard lock(memory().mutex);
    Card& card = memory().all[number];
    if (whole < bytes || !(piece = card.gap(whole))) return nullptr;
    card.taken.emplace(piece, whole);
    card.free -= whole;
    card.used_up_to = std::max(card.used_up_to, static_cast<size_t>(piece - card.base) + whole);
    if (memory().is_open(number)) card.protect(PROT_READ | PROT_WRITE);
  }
  const Access access(number);
  std::memset(piece, null_card() ? 0 : 0xff, whole);
  return piece;
}

bool give_memory(void* piece) {
  const std::lock_guard lock(memory().mutex);
  for (Card& card : memory().all) {
    const auto at = card.taken.find(static_cast<char*>(piece));
    if (at == card.taken.end()) continue;
    madvise(piece, at->second, MADV_DONTNEED);
    card.free += at->second;
    card.taken.erase(at);
    return true;
  }
  return false;
}

size_t free_memory(int card) {
  const std::lock_guard lock(memory().mutex);
  return memory().all[card].free;
}

int card_of(const void* first, size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  for (int card = 0; card < cards; ++card)
    if (within(memory().all[card].taken, first, bytes)) return card;
  return no_card;
}

void* take_pinned(size_t bytes) {
  void* const piece = std::aligned_alloc(granule, (bytes + granule - 1) / granule * granule);
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(static_cast<char*>(piece), bytes);
  return piece;
}

bool is_pinned(const void* place) {
  const std::lock_guard lock(memory().mutex);
  return within(memory().pinned, place, 1);
}

}  // namespace weft::emulated
