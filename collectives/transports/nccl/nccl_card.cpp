// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/nccl_card.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "weft/collectives/transports/nccl/nccl.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

using Card = std::array<char, sizeof(cudaUUID_t)>;

Card my_card() {
  Card card{};
  if (!available(Device::cuda)) return card;
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, my_device()), "cudaGetDeviceProperties");
  std::memcpy(card.data(), &properties.uuid, sizeof card);
  return card;
}

}  // namespace

void check_cuda(cudaError_t code, const char* call) {
  require(code == cudaSuccess, "nccl: ", call, " failed: ", cudaGetErrorString(code));
}

cudaStream_t my_stream() { return static_cast<cudaStream_t>(backend(Device::cuda).queue()); }
int my_device() {
  my_stream();  // makes its card the current one
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void take_card(int i) {
  if (!available(Device::cuda)) return;
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  backend(Device::cuda).use_card(i % count);
}

std::string obstacle_to_nccl(Transport& group) {
  const Card mine = my_card();
  std::vector<Card> cards(static_cast<size_t>(group.size()));
  group.expose(describe(Verb::all_gather, Site::here("cards")), std::as_bytes(std::span(mine)), sizeof mine,
               [&](const Transport::Part& part) {
                 for (size_t r = 0; r < cards.size(); ++r)
                   std::memcpy(cards[r].data() + part.first, part.peers[r], part.last - part.first);
               });
  for (size_t r = 0; r < cards.size(); ++r) {
    const auto name = [&](size_t i) { return text(group.global({static_cast<int>(i)})); };
    if (cards[r] == Card{}) return "rank " + name(r) + " has no card";
    const auto first = static_cast<size_t>(std::find(cards.begin(), cards.end(), cards[r]) - cards.begin());
    if (first < r) return "ranks " + name(first) + " and " + name(r) + " share a card; NCCL needs one for each";
  }
  return "";
}

}  // namespace weft
