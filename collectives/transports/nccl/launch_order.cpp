// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/launch_order.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int rank_bits = 20;  // the lowest of a number, so that no two proposals are equal

}  // namespace

LaunchOrder::Place::Place(LaunchOrder& order, Started* call)
    : order_(order), number_((++order.latest_ << rank_bits) + static_cast<Number>(order.rank_.value)) {
  order_.places_[number_] = call;
}

LaunchOrder::Place::~Place() { order_.places_.erase(number_); }

void LaunchOrder::Place::agree(Number largest) {
  auto place = order_.places_.extract(number_);
  place.key() = number_ = largest;
  order_.places_.insert(std::move(place));
  order_.latest_ = std::max(order_.latest_, largest >> rank_bits);
  agreed_ = true;
}

bool LaunchOrder::Place::is_first() const { return agreed_ && order_.places_.begin()->first == number_; }

void LaunchOrder::Place::become_first() const {
  while (!is_first()) order_.places_.begin()->second->take_next_step();
}

}  // namespace weft
