// SPDX-License-Identifier: Apache-2.0
// A broadcast in slices: the root sends each rank its slice, and the ranks send theirs to each other. So the root's
// link carries the bytes twice, however many ranks there are.
#include <algorithm>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

void MpiGroup::broadcast_in_slices(Bytes mine, const Ranges& ranges, Read read) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  size_t root = me;
  for (size_t r = 0; r < n; ++r)
    if (r != me && ranges.of_peers[r].size()) root = r;
  const Range all = root == me ? ranges.by_peers[me == 0 ? 1 : 0] : ranges.of_peers[root];
  const Wire& wire = state_->wire;
  begins_.assign(n, 0), peers_.assign(n, nullptr);
  for (size_t at = 0; at < all.size(); at += n * part_bytes()) {
    const Range part = Range{0, all.size()}.piece(at, n * part_bytes());
    const auto slice = [&](size_t r) { return part.slice(r, n); };
    staging_.resize(std::max(staging_.size(), part.size()));
    const auto receive = [&](size_t r, size_t from, Wire::Requests& requests) {
      wire.receive(staging_.data() + (slice(r).first - at), slice(r).size(), static_cast<int>(from), swap_tag,
                   requests);
    };
    const auto send = [&](const std::byte* bytes, size_t r, size_t to, Wire::Requests& requests) {
      wire.send(bytes, slice(r).size(), static_cast<int>(to), swap_tag, requests);
    };
    Wire::Requests own, others;
    for (size_t r = 0; r < n; ++r) {
      if (r == me) continue;
      if (root == me) {
        const std::byte* const bytes = mine.data() + ranges.by_peers[r].first;
        send(bytes + slice(r).first, r, r, others);
        send(bytes + slice(me).first, me, r, others);
      } else if (r == root) {
        receive(me, root, own);
        receive(root, root, others);
      } else {
        receive(r, r, others);
      }
    }
    finish(own);
    for (size_t r = 0; r < n && root != me; ++r)
      if (r != me && r != root) send(staging_.data() + (slice(me).first - at), me, r, others);
    finish(others);
    begins_[root] = ranges.of_peers[root].first + at;
    peers_[root] = root == me ? mine.data() + begins_[me] : staging_.data();
    if (ranges.of_peers[root].size()) read({0, part.size(), peers_, begins_});
  }
}

}  // namespace weft
