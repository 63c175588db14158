// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes of the ranks' memory, as transports move them.
#include <algorithm>
#include <cstddef>
#include <span>

namespace weft {

// The bytes [first, last) of a rank's memory.
struct ByteRange {
  size_t first = 0, last = 0;
  size_t size() const { return last - first; }
  // At most `bytes` of it, from `skipped` bytes after its beginning on.
  ByteRange piece(size_t skipped, size_t bytes) const {
    return {std::min(first + skipped, last), std::min(first + skipped + bytes, last)};
  }
  // The r-th of n slices of about equal size, cut at multiples of 64 bytes from its beginning.
  ByteRange slice(size_t r, size_t n) const {
    const size_t each = (size() + n * 64 - 1) / (n * 64) * 64;
    return piece(r * each, each);
  }
};
// Whether there are any, and all are of one size.
inline bool of_one_size(std::span<const ByteRange> ranges) {
  const auto fits = [&](const ByteRange& range) { return range.size() == ranges[0].size(); };
  return !ranges.empty() && std::all_of(ranges.begin(), ranges.end(), fits);
}
// Which bytes move: those of each rank's memory that this rank reads, and those of its own that each rank reads. All
// ranks know both from the arguments of the call. If they are empty, every rank reads all bytes of all ranks.
struct ByteRanges {
  std::span<const ByteRange> of_peers, by_peers;
  bool all() const { return of_peers.empty(); }
  size_t longest_of_peers() const { return longest(of_peers); }
  size_t longest() const { return std::max(longest(of_peers), longest(by_peers)); }

 private:
  static size_t longest(std::span<const ByteRange> ranges) {
    size_t most = 0;
    for (const ByteRange& range : ranges) most = std::max(most, range.size());
    return most;
  }
};

// The bytes [first, last) of every rank: peers[r] is the address of byte `first` of rank r. If there are `begins`,
// it is the address of byte begins[r], and as many bytes follow. A pointer is valid only for bytes that its rank
// exposes and this rank reads.
struct BytePart {
  size_t first, last;
  std::span<const std::byte* const> peers;
  std::span<const size_t> begins = {};
  ByteRange of(size_t rank) const {
    return begins.empty() ? ByteRange{first, last} : ByteRange{begins[rank], begins[rank] + last - first};
  }
};

}  // namespace weft
