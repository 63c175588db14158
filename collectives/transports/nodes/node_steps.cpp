// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nodes/node_steps.h"

#include <algorithm>

namespace weft {

void NodeSteps::Folding::write(const std::byte* board, std::byte* to) const {
  std::vector<const std::byte*> peers(static_cast<size_t>(fold.ranks.back()) + 1);
  for (size_t i = 0; i < terms.size(); ++i) peers[static_cast<size_t>(fold.ranks[i])] = board + terms[i];
  fold.write({0, elements.size() * size_of(fold.dtype), peers}, to);
}

void NodeSteps::Swap::put(const Transport::Part& part, std::byte* board) const {
  for (const auto& [node, bytes, at] : arrivals) {
    const Range came = part.of(node);
    const size_t first = std::max(came.first, bytes.first), last = std::min(came.last, bytes.last);
    if (first < last)
      std::copy_n(part.peers[node] + (first - came.first), last - first, board + at + (first - bytes.first));
  }
}

void NodeSteps::fold_subtrees(const NodeMap& map, std::span<const std::byte* const> here, Range share,
                              std::byte* board) const {
  std::vector<const std::byte*> peers(map.ranks());
  for (size_t i = 0; i < here.size(); ++i) peers[static_cast<size_t>(map.here()[i])] = here[i];
  for (const auto& [fold, terms, elements, at] : subtrees) {
    const size_t size = size_of(fold.dtype), first = std::max(share.first / size, elements.first),
                 last = std::min(share.last / size, elements.last);
    if (first < last)
      fold.write({share.first, share.last, peers}, static_cast<int64_t>(first - share.first / size),
                 static_cast<int64_t>(last - first),
                 board + at + (first - elements.first) * size_of(fold.result_dtype));
  }
}

void NodeSteps::fold_sums(std::byte* board) const {
  for (const Folding& each : sums) each.write(board, board + each.at);
}

void NodeSteps::take(const std::byte* board, std::span<std::byte> result) const {
  if (scan) return scan->write(board, result.data());
  if (this->result) std::copy_n(board + *this->result, result.size(), result.data());
}

std::vector<const std::byte*> NodeSteps::peers(const std::byte* board) const {
  std::vector<const std::byte*> at;
  for (const std::ptrdiff_t begin : begins) at.push_back(board + begin);
  return at;
}

}  // namespace weft
