// SPDX-License-Identifier: Apache-2.0
#pragma once
// The order in which a card gets the calls of all groups. All cards must get the calls that they share in one order:
// otherwise each of two may begin with what the other does last, and both wait for ever.
//
// Every rank of a call proposes a number for it, later than all that it has seen. The largest is the number of the
// call. A card gets its calls by number, each once no other call that has a proposal of this rank can come before it.
// (Skeen's total order of messages to overlapping groups.)
#include <cstdint>
#include <map>

#include "weft/collectives/call.h"

namespace weft {

// Of one rank, which shares it among its groups.
class LaunchOrder {
 public:
  using Number = uint64_t;

  class Started {
   public:
    virtual void take_next_step() = 0;  // towards the card; may wait for other ranks
   protected:
    ~Started() = default;
  };

  // A call's, from its proposal until the card has got it. Only a call that was started can be in the way of others.
  class Place {
   public:
    explicit Place(LaunchOrder& order, Started* call = nullptr);
    Place(const Place&) = delete;
    ~Place();

    Number number() const { return number_; }  // proposed, or agreed on
    void agree(Number largest);
    bool is_first() const;      // and agreed on
    void become_first() const;  // takes the steps of those before it

   private:
    LaunchOrder& order_;
    Number number_;
    bool agreed_ = false;
  };

  explicit LaunchOrder(GlobalRank rank) : rank_(rank) {}

 private:
  const GlobalRank rank_;
  uint64_t latest_ = 0;
  std::map<Number, Started*> places_;
};

}  // namespace weft
