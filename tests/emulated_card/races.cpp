// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/races.h"

#include <sys/mman.h>

namespace weft::emulated {
namespace {

// From high to low: the number of a stream, a position on it, a block, whether several blocks have read, and which
// bytes of a word.
using Trace = uint64_t;
constexpr int block_shift = 9, position_shift = block_shift + 16, stream_shift = position_shift + 24;
constexpr Trace several = 1 << 8, all_bytes = several - 1, launch_of = ~Trace{0} << position_shift;

Trace between(Trace trace, int low, int high) { return trace << (64 - high) >> (64 - high + low); }
Trace trace_of(const Accessor& accessor) {
  const Trace block = accessor.block & ((Trace{1} << (position_shift - block_shift)) - 1);
  return Trace{accessor.place.stream} << stream_shift | accessor.place.position << position_shift |
         block << block_shift;
}
// Whether a trace has room for the place; it has in all tests.
bool has_room(const Place& place) {
  return place.stream >> (64 - stream_shift) == 0 && place.position >> (stream_shift - position_shift) == 0;
}

constexpr uintptr_t word = 8;
struct Cell {
  Trace writer, reader;
};
Cell* cells() {
  static Cell* const all =
      static_cast<Cell*>(mmap(nullptr, cards * card_bytes / word * sizeof(Cell), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return all;
}
Trace get(const Trace& trace) { return __atomic_load_n(&trace, __ATOMIC_RELAXED); }
void set(Trace& trace, Trace value) { __atomic_store_n(&trace, value, __ATOMIC_RELAXED); }

bool same_block(Trace a, Trace b) { return ((a ^ b) >> block_shift) == 0; }

// Whether an earlier access of other or the same bytes comes before an access, or is of the same block.
bool is_before(Trace earlier, const Accessor& accessor, Trace mine) {
  if ((earlier & mine & all_bytes) == 0) return true;
  if (((earlier ^ mine) & launch_of) == 0) return same_block(earlier, mine) && (earlier & several) == 0;
  const size_t stream = earlier >> stream_shift;
  const Trace position = between(earlier, position_shift, stream_shift);
  const uint64_t done = stream == accessor.place.stream ? accessor.place.position : (*accessor.place.before)[stream];
  return position <= done;
}

// The trace after one more access. A cell has room for one, so of other bytes it may forget an earlier one.
Trace added(Trace earlier, Trace mine) { return same_block(earlier, mine) ? earlier | mine : mine; }
Trace added_read(Trace earlier, Trace mine) {
  const Trace both = earlier & mine & all_bytes;
  const bool of_this_launch = ((earlier ^ mine) & launch_of) == 0;
  if (of_this_launch && (earlier & several) != 0) return both != 0 ? earlier : mine;
  if (!of_this_launch || same_block(earlier, mine) || both == 0) return added(earlier, mine);
  return (mine & ~all_bytes) | several | both;
}

// The bytes of a word from `first` on.
Trace bytes_of(uintptr_t place, uintptr_t first, uintptr_t last) {
  const uintptr_t from = std::max(place, first) - place, to = std::min(place + word, last) - place;
  return (all_bytes >> (word - (to - from))) << from;
}

}  // namespace

uint64_t note_access(const Accessor& accessor, uintptr_t first, size_t bytes, bool writes) {
  if (!has_room(accessor.place)) return 0;
  const Trace who = trace_of(accessor);
  uint64_t objection = 0;
  for (uintptr_t place = first / word * word; place < first + bytes; place += word) {
    Cell& cell = cells()[(place - first_address) / word];
    const Trace mine = who | bytes_of(place, first, first + bytes), writer = get(cell.writer),
                reader = get(cell.reader);
    if ((writes ? writer : reader) == mine) continue;  // what others have done since has been compared with it
    if (!is_before(writer, accessor, mine)) objection = writer;
    if (writes) {
      if (!is_before(reader, accessor, mine)) objection = reader;
      set(cell.writer, added(writer, mine));
    } else {
      set(cell.reader, added_read(reader, mine));
    }
  }
  return objection;
}

std::string description(const Accessor& accessor, uint64_t earlier) {
  if (((trace_of(accessor) ^ earlier) & launch_of) == 0) {
    const Trace block = between(earlier, block_shift, position_shift);
    return (earlier & several) != 0 ? "several blocks" : "block " + std::to_string(block);
  }
  const Trace position = between(earlier, position_shift, stream_shift);
  return "work " + std::to_string(position) + " of stream " + std::to_string(earlier >> stream_shift);
}

void forget_accesses(uintptr_t first, size_t bytes) {
  madvise(&cells()[(first - first_address) / word], bytes / word * sizeof(Cell), MADV_DONTNEED);
}

}  // namespace weft::emulated
