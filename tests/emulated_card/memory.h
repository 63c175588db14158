// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the emulated cards, and the host memory that they can access. The host and other cards cannot access a
// card's memory: an attempt ends with a segmentation fault.
//
// Memory is taken in pieces. A pool can say which bytes of a piece are in use; without a pool, all that were asked for
// are. Memory holds NaN when its use begins.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::emulated {

constexpr int cards = 5;                    // so that ranks can have one each
inline std::atomic<int> visible_cards = 3;  // as many as most tests need: each makes them longer
inline std::atomic<int> driver_version = 12040;
constexpr int no_card = -1, every_card = -2;
constexpr size_t card_bytes = size_t{16} << 30;
constexpr uintptr_t first_address = uintptr_t{1} << 45;  // of card 0; the others follow

extern constinit thread_local int current_card;  // selected by cudaSetDevice

// While an Access exists, this card's memory is accessible, and no other card's. Work on another card waits meanwhile.
class Access {
 public:
  explicit Access(int card);  // or every_card, for copies between cards
  ~Access();
  Access(const Access&) = delete;
};

void* take_memory(int card, size_t bytes);  // null if there is not enough
bool give_memory(void* memory);             // false if nothing was taken there
size_t free_memory(int card);
int card_of(const void* first, size_t bytes);  // the card with a piece in use that contains all of it, or no_card
inline bool is_on_a_card(const void* place) {
  return reinterpret_cast<uintptr_t>(place) - first_address < cards * card_bytes;
}

// A moment in the host's order of allocations and launches. Work on a stream may use what was in use when it was
// enqueued, however late it runs.
using Moment = uint64_t;
Moment now();
struct When {
  Moment asked;
  Moment launched = asked, recorded_from = asked, recorded_to = asked;  // of a graph that has recorded it
};

// A pool's: which bytes of a piece are in use. What is not a card's is ignored.
void divide(const void* piece);  // none, until one of the following
void begin_use(const void* piece, size_t bytes);
void end_use(const void* piece);

// The bytes in use around a place, for work of that moment, or why there are none. Fills them with NaN for their first
// user.
struct Bounds {
  uintptr_t first = 0, last = 0;
};
struct Seen {
  Bounds bounds;
  std::string objection;
};
Seen look(uintptr_t place, const When& when);

void* take_pinned(size_t bytes);
bool is_pinned(const void* memory);

}  // namespace weft::emulated
