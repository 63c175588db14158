// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks with a card each, as many as there are cards, to be connected by NCCL.
#include <algorithm>

#include "tests/support/catch.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/nccl/nccl.h"

namespace weft {

inline int usable_cards() {
  static const int cards = [] {
    for (int n = 0;; ++n) {
      bool usable = false;
      run_ranks(n + 1, [&](std::unique_ptr<Transport> group) {
        take_card(group->rank());
        const bool well = obstacle_to_nccl(*group).empty();
        if (group->rank() == 0) usable = well;
      });
      if (!usable) return n;
    }
  }();
  return cards;
}

// Warns if there are fewer than two.
inline bool several_cards() {
  if (usable_cards() < 2) WARN("NCCL can use " << usable_cards() << " cards, 2 are needed: skipped");
  return usable_cards() >= 2;
}

// Calls body(comm) on threads that communicate through the memory of their process alone. Rank r uses card r modulo the
// number of cards, or all ranks use card 0.
enum class CardOf { rank, first };
template <class Body> void on_threads_with_cards(int ranks, const Body& body, CardOf which = CardOf::rank) {
  INFO(ranks << " ranks");
  CHECK_NOTHROW(run_ranks(ranks, [&](std::unique_ptr<Transport> group) {
    take_card(which == CardOf::rank ? group->rank() : 0);
    Communicator comm(std::move(group));
    body(comm);
  }));
}

// Calls body(group) on ranks with a card each, before NCCL is connected; with a warning instead if there are too few.
template <class Body> void on_ranks_with_cards(int ranks, const Body& body) {
  if (usable_cards() < ranks) {
    WARN("NCCL can use " << usable_cards() << " cards, " << ranks << " are needed: skipped");
    return;
  }
  run_ranks(ranks, [&](std::unique_ptr<Transport> group) {
    take_card(group->rank());
    body(std::move(group));
  });
}
// The same on as many ranks as there are cards.
template <class Body> void on_cards_of(int at_least, const Body& body) {
  on_ranks_with_cards(std::max(at_least, usable_cards()), body);
}

}  // namespace weft
