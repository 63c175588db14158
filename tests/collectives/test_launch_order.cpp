// SPDX-License-Identifier: Apache-2.0
// One order of the calls of overlapping groups, whatever the order in which ranks come to them.
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "weft/collectives/transports/nccl/launch_order.h"

using weft::GlobalRank;
using weft::LaunchOrder;

namespace test_launch_order {

LaunchOrder::Number largest(std::initializer_list<LaunchOrder::Place*> places) {
  LaunchOrder::Number number = 0;
  for (const auto* place : places) number = std::max(number, place->number());
  for (auto* place : places) place->agree(number);
  return number;
}

TEST_CASE("two calls that two ranks propose in different orders are in one order on both") {
  LaunchOrder first(GlobalRank{0}), second(GlobalRank{1});
  LaunchOrder::Place x(first), also_y(second), y(first), also_x(second);
  const auto number_of_x = largest({&x, &also_x});
  CHECK_FALSE((x.is_first() || also_x.is_first()));  // the other may get a smaller number
  const auto number_of_y = largest({&y, &also_y});
  CHECK(number_of_x != number_of_y);
  CHECK(x.is_first() == (number_of_x < number_of_y));
  CHECK(x.is_first() == also_x.is_first());
  CHECK(y.is_first() == also_y.is_first());
  CHECK(x.is_first() != y.is_first());
  CHECK(LaunchOrder::Place(first).number() > std::max(number_of_x, number_of_y));
}

struct Call {
  std::vector<size_t> members;
  std::vector<std::unique_ptr<LaunchOrder::Place>> places;  // by member
  bool agreed = false;
};

TEST_CASE("every rank gets the calls of random overlapping groups in the order of their numbers") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 dice(seed);
    const size_t ranks = 2 + seed % 7;
    std::vector<std::unique_ptr<LaunchOrder>> orders;
    for (size_t r = 0; r < ranks; ++r) orders.push_back(std::make_unique<LaunchOrder>(GlobalRank{static_cast<int>(r)}));
    std::vector<Call> calls(40);
    std::vector<std::vector<Call*>> ahead(ranks);  // what each rank has yet to propose for, in an order of its own
    for (Call& call : calls) {
      for (size_t r = 0; r < ranks; ++r)
        if (dice() % 2) call.members.push_back(r), ahead[r].push_back(&call);
      call.places.resize(call.members.size());
    }
    for (auto& own : ahead) std::shuffle(own.begin(), own.end(), dice);
    std::vector<LaunchOrder::Number> last(ranks);
    const auto everywhere = [](const Call& call, auto test) {
      return std::all_of(call.places.begin(), call.places.end(), test);
    };
    for (bool any = true; any;) {
      if (auto& own = ahead[dice() % ranks]; !own.empty()) {
        Call& call = *own.back();
        own.pop_back();
        const size_t rank = static_cast<size_t>(&own - ahead.data());
        const auto member = std::find(call.members.begin(), call.members.end(), rank) - call.members.begin();
        call.places[static_cast<size_t>(member)] = std::make_unique<LaunchOrder::Place>(*orders[rank]);
      }
      any = std::any_of(ahead.begin(), ahead.end(), [](const auto& own) { return !own.empty(); });
      for (Call& call : calls) {
        if (!call.agreed && everywhere(call, [](const auto& place) { return place != nullptr; })) {
          LaunchOrder::Number number = 0;
          for (const auto& place : call.places) number = std::max(number, place->number());
          for (const auto& place : call.places) place->agree(number);
          call.agreed = true;
        }
        for (size_t m = 0; m < call.members.size(); ++m) {
          if (!call.places[m] || !call.agreed) continue;
          any = true;
          if (!call.places[m]->is_first()) continue;
          REQUIRE(call.places[m]->number() > std::exchange(last[call.members[m]], call.places[m]->number()));
          call.places[m] = nullptr;
        }
      }
    }
    for (const Call& call : calls) CHECK(everywhere(call, [](const auto& place) { return place == nullptr; }));
  }
}

}  // namespace test_launch_order
