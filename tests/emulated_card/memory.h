// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the emulated cards, and the host's memory that they can reach. Neither the host nor another card can
// touch a card's: who tries ends with a segmentation fault. What a card gives holds NaN.
#include <cstddef>
#include <cstdint>

namespace weft::emulated {

constexpr int cards = 3;  // so that ranks may have one each
constexpr int no_card = -1, every_card = -2;
constexpr size_t card_bytes = size_t{16} << 30;

extern constinit thread_local int current_card;  // as cudaSetDevice has chosen it

// While one lives, this card's memory can be touched, and no other card's: for those who compute there. Who computes on
// another card waits meanwhile.
class Access {
 public:
  explicit Access(int card);  // or every_card, for what goes between them
  ~Access();
  Access(const Access&) = delete;
};

void* take_memory(int card, size_t bytes);  // null where there is not that much
bool give_memory(void* memory);             // false where none was taken
size_t free_memory(int card);
int card_of(const void* first, size_t bytes);  // whose taken piece all of it is in, or no_card

void* take_pinned(size_t bytes);
bool is_pinned(const void* memory);

}  // namespace weft::emulated
