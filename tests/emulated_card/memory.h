// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the emulated cards, and the host memory that they can access. The host and other cards cannot access a
// card's memory: an attempt ends with a segmentation fault. New memory holds NaN.
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace weft::emulated {

constexpr int cards = 5;                    // so that ranks can have one each
inline std::atomic<int> visible_cards = 3;  // as many as most tests need: each makes them longer
inline std::atomic<int> driver_version = 12040;
constexpr int no_card = -1, every_card = -2;
constexpr size_t card_bytes = size_t{16} << 30;

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
int card_of(const void* first, size_t bytes);  // the card with a taken piece that contains all of it, or no_card

void* take_pinned(size_t bytes);
bool is_pinned(const void* memory);

}  // namespace weft::emulated
