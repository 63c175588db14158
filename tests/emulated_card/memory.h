#pragma once
// The memory of the emulated cards, and the host's memory that they can reach. The host cannot touch a card's: it ends
// with a segmentation fault, as with a real one. What a card gives holds NaN.
#include <cstddef>
#include <cstdint>

namespace weft::emulated {

constexpr size_t card_bytes = size_t{16} << 30;

// While one lives, the cards' memory can be touched: for those who compute there.
struct Access {
  Access();
  ~Access();
  Access(const Access&) = delete;
};

void* take_memory(size_t bytes);  // null where there is not that much
bool give_memory(void* memory);   // false where none was taken
size_t free_memory();
bool on_card(const void* first, size_t bytes);  // within one piece that was taken

void* take_pinned(size_t bytes);
bool is_pinned(const void* memory);

}  // namespace weft::emulated
