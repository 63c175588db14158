// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/emulated_card/null_card.h"
#include "tests/emulated_card/races.h"

namespace weft::emulated {
namespace {

constexpr size_t granule = 4096;

constexpr size_t none = ~size_t{0};

// What is in use of a piece from a moment on: some bytes or, not even an empty block, none.
struct Use {
  Moment since;
  size_t bytes;
};

struct Piece {
  size_t whole;
  std::vector<Use> uses;
  Moment filled = 0;  // the begin of the use whose memory has been filled with NaN

  Piece(size_t whole, Moment since, size_t bytes) : whole(whole), uses{{since, bytes}} {}
  size_t used() const { return uses.back().bytes; }
  void use(Moment since, size_t bytes) {
    constexpr size_t remembered = size_t{1} << 14;  // more than work waits on any stream
    if (uses.size() == remembered) uses.erase(uses.begin(), uses.begin() + remembered / 2);
    uses.push_back({since, bytes});
  }
  const Use* at(Moment moment) const {
    const auto later =
        std::upper_bound(uses.begin(), uses.end(), moment, [](Moment m, const Use& use) { return m < use.since; });
    return later == uses.begin() ? nullptr : &*std::prev(later);
  }
};
using Pieces = std::map<uintptr_t, Piece>;

uintptr_t address(const void* place) { return reinterpret_cast<uintptr_t>(place); }

// The piece that contains a place.
template <class Map> auto around(Map& pieces, uintptr_t place) {
  const auto next = pieces.upper_bound(place);
  if (next == pieces.begin()) return pieces.end();
  const auto found = std::prev(next);
  return place < found->first + found->second.whole ? found : pieces.end();
}

struct Card {
  uintptr_t base = 0;
  Pieces taken;
  size_t free = card_bytes, used_up_to = 0;

  void reserve(uintptr_t at) {
    constexpr int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    base = address(mmap(reinterpret_cast<void*>(at), card_bytes, PROT_NONE, kind, -1, 0));
    if (base != at) std::abort();
    madvise(reinterpret_cast<void*>(base), card_bytes, MADV_HUGEPAGE);  // else `protect` is slow
  }
  void protect(int access) { mprotect(reinterpret_cast<void*>(base), used_up_to, access); }

  // The first gap that is large enough, or 0.
  uintptr_t gap(size_t bytes) const {
    uintptr_t place = base;
    for (const auto& [first, piece] : taken) {
      if (first - place >= bytes) return place;
      place = first + piece.whole;
    }
    return base + card_bytes - place >= bytes ? place : 0;
  }
};

// Never destroyed, because tensors are freed while the program ends.
struct Memory {
  std::mutex mutex;
  std::condition_variable closed;
  Card all[cards];
  Pieces pinned;
  Moment moment = 1;
  int open = no_card, at_work = 0;  // the card whose memory is accessible, and the number of its users

  Memory() {
    for (size_t card = 0; card < cards; ++card) all[card].reserve(first_address + card * card_bytes);
  }
  Piece* piece(const void* first) {
    if (!is_on_a_card(first)) return nullptr;
    Pieces& taken = all[(address(first) - first_address) / card_bytes].taken;
    const auto found = taken.find(address(first));
    return found == taken.end() ? nullptr : &found->second;
  }
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
  const size_t whole = (bytes + 2 * granule - 1) / granule * granule;  // a gap separates it from the next piece
  const std::lock_guard lock(memory().mutex);
  Card& card = memory().all[number];
  const uintptr_t place = whole < bytes ? 0 : card.gap(whole);
  if (place == 0) return nullptr;
  card.taken.emplace(place, Piece(whole, ++memory().moment, bytes));
  card.free -= whole;
  card.used_up_to = std::max(card.used_up_to, place - card.base + whole);
  if (memory().is_open(number)) card.protect(PROT_READ | PROT_WRITE);
  return reinterpret_cast<void*>(place);
}

bool give_memory(void* first) {
  const std::lock_guard lock(memory().mutex);
  Piece* const piece = memory().piece(first);
  if (!piece) return false;
  Card& card = memory().all[(address(first) - first_address) / card_bytes];
  madvise(first, piece->whole, MADV_DONTNEED);
  forget_accesses(address(first), piece->whole);
  card.free += piece->whole;
  card.taken.erase(address(first));
  ++memory().moment;
  return true;
}

size_t free_memory(int card) {
  const std::lock_guard lock(memory().mutex);
  return memory().all[card].free;
}

int card_of(const void* first, size_t bytes) {
  if (!is_on_a_card(first)) return no_card;
  const std::lock_guard lock(memory().mutex);
  const auto card = static_cast<int>((address(first) - first_address) / card_bytes);
  const Pieces& taken = memory().all[card].taken;
  const auto found = around(taken, address(first));
  if (found == taken.end() || found->second.used() == none) return no_card;
  return address(first) + bytes <= found->first + found->second.used() ? card : no_card;
}

Moment now() {
  const std::lock_guard lock(memory().mutex);
  return memory().moment;
}

static void use(const void* first, size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  if (Piece* const piece = memory().piece(first)) piece->use(++memory().moment, bytes);
}
void divide(const void* piece) { use(piece, none); }
void begin_use(const void* piece, size_t bytes) { use(piece, bytes); }
void end_use(const void* piece) { use(piece, none); }

Seen look(uintptr_t place, const When& when) {
  const std::lock_guard lock(memory().mutex);
  Pieces& taken = memory().all[(place - first_address) / card_bytes].taken;
  const auto found = around(taken, place);
  if (found == taken.end()) return {{}, "which is not allocated"};
  auto& [first, piece] = *found;
  const Use* const use = piece.at(when.asked);
  if (!use) return {{}, "which is allocated only after this was enqueued"};
  if (use->bytes == none) return {{}, "which the pool had taken back when this was enqueued"};
  // A graph's own blocks are used again by each of its launches.
  const bool of_graph = use->since >= when.recorded_from && piece.filled <= when.recorded_to;
  if (!of_graph && piece.at(when.launched) != use) return {{}, "which was taken back after this was recorded"};
  if (piece.filled > use->since && !of_graph)
    return {{}, "which another use has overwritten, because nothing made it wait"};
  if (piece.filled != use->since) std::memset(reinterpret_cast<void*>(first), null_card() ? 0 : 0xff, piece.whole);
  piece.filled = use->since;
  return {{first, first + use->bytes}, ""};
}

void* take_pinned(size_t bytes) {
  void* const piece = std::aligned_alloc(granule, (bytes + granule - 1) / granule * granule);
  const std::lock_guard lock(memory().mutex);
  memory().pinned.emplace(address(piece), Piece(bytes, 0, bytes));
  return piece;
}

bool is_pinned(const void* place) {
  const std::lock_guard lock(memory().mutex);
  return around(memory().pinned, address(place)) != memory().pinned.end();
}

}  // namespace weft::emulated
