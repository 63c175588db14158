// SPDX-License-Identifier: Apache-2.0
// One order of the calls of overlapping groups, whatever the order in which ranks come to them.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>
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

// Calls of random groups, to which every rank comes in an order of its own.
class Job {
 public:
  explicit Job(unsigned seed) : dice_(seed), ahead_(2 + seed % 7), last_(ahead_.size()), calls_(40) {
    for (size_t r = 0; r < ahead_.size(); ++r)
      orders_.push_back(std::make_unique<LaunchOrder>(GlobalRank{static_cast<int>(r)}));
    for (Call& call : calls_)
      for (size_t r = 0; r < ahead_.size(); ++r)
        if (dice_() % 2) call.places.emplace_back(r, nullptr), ahead_[r].push_back(&call);
    for (auto& own : ahead_) std::shuffle(own.begin(), own.end(), dice_);
  }

  // A rank proposes, if it has more calls; then what can be agreed on is, and what comes first leaves.
  bool step() {
    const size_t rank = dice_() % ahead_.size();
    if (!ahead_[rank].empty()) {
      for (auto& [member, place] : ahead_[rank].back()->places)
        if (member == rank) place = std::make_unique<LaunchOrder::Place>(*orders_[rank]);
      ahead_[rank].pop_back();
    }
    bool any = std::any_of(ahead_.begin(), ahead_.end(), [](const auto& own) { return !own.empty(); });
    for (Call& call : calls_) {
      if (!call.agreed && call.all_have_proposed()) call.agree();
      for (auto& [member, place] : call.places) {
        if (!call.agreed || !place) continue;
        any = true;
        if (place->is_first()) leave(member, place);
      }
    }
    return any;
  }

 private:
  struct Call {
    std::vector<std::pair<size_t, std::unique_ptr<LaunchOrder::Place>>> places;  // by member
    bool agreed = false;

    bool all_have_proposed() const {
      return std::all_of(places.begin(), places.end(), [](const auto& each) { return each.second != nullptr; });
    }
    void agree() {
      LaunchOrder::Number largest = 0;
      for (const auto& [member, place] : places) largest = std::max(largest, place->number());
      for (const auto& [member, place] : places) place->agree(largest);
      agreed = true;
    }
  };

  void leave(size_t member, std::unique_ptr<LaunchOrder::Place>& place) {
    REQUIRE(place->number() > std::exchange(last_[member], place->number()));
    place = nullptr;
  }

  std::mt19937 dice_;
  std::vector<std::unique_ptr<LaunchOrder>> orders_;
  std::vector<std::vector<Call*>> ahead_;  // what each rank has yet to propose for
  std::vector<LaunchOrder::Number> last_;  // that has left a rank
  std::vector<Call> calls_;
};

TEST_CASE("every rank gets the calls of random overlapping groups in the order of their numbers") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    Job job(seed);
    int steps = 0;
    while (job.step()) REQUIRE(++steps < 10'000);
  }
}

}  // namespace test_launch_order
