// SPDX-License-Identifier: Apache-2.0
// Collectives started on cards by ranks that are at different places: a start waits for nobody, whatever the ranks do
// before it is finished, and the cards still do everything in one order.
#include <array>
#include <map>
#include <optional>
#include <random>

#include "tests/emulated_card/memory.h"
#include "tests/support/on_cards.h"
#include "tests/support/on_ranks.h"

using namespace weft;
using namespace std::chrono_literals;
using Catch::Contains;

namespace test_nccl_started {

[[maybe_unused]] const int all_cards = emulated::visible_cards = emulated::cards;

void on_cards(int ranks, const std::function<void(Communicator&)>& body) {
  INFO(ranks << " ranks");
  CHECK_NOTHROW(on_ranks_with_cards(ranks, [&](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group), 10s));
    body(comm);
  }));
}

// Whole numbers, whose sums are exact. Every rank can compute those of every other.
Tensor numbers(int rank, int64_t rows, int use) {
  std::vector<double> values;
  for (int64_t i = 0; i < 3 * rows; ++i) values.push_back(static_cast<double>((rank * 31 + use * 7 + i * 3) % 101));
  return Tensor::from({rows, 3}, values);
}

void expect_gathered(const Tensor& all, int ranks, int use) {
  std::vector<double> expected;
  for (int r = 0; r < ranks; ++r)
    for (const double x : numbers(r, 4, use).values()) expected.push_back(x);
  require(all.values() == expected, "what ", ranks, " ranks gather for use ", use, " differs");
}

Pending gather(Communicator& comm, int use) {
  return comm.start(AllGather{}, numbers(number(comm), 4, use).to(Device::cuda));
}
// Reads the result, so the host waits for the cards.
void finish(const Communicator& comm, Pending gathered, int use) { expect_gathered(gathered.wait(), comm.size(), use); }
void sum(Communicator& comm, int use) {
  std::vector<double> expected(15);
  for (int r = 0; r < comm.size(); ++r) {
    const std::vector<double> terms = numbers(r, 5, use).values();
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += terms[i];
  }
  require(comm.all_reduce(numbers(number(comm), 5, use).to(Device::cuda)).values() == expected, "sum ", use,
          " differs");
}
bool even(const Communicator& comm) { return number(comm) % 2 == 0; }

TEST_CASE("ranks may start on cards before or after a collective of another group") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, [](Communicator& comm) {
    const auto apart = comm.duplicate();
    for (int use = 0; use < 4; ++use) {
      std::optional<Pending> early;
      if (even(comm)) early.emplace(gather(*apart, use));
      sum(comm, use);
      finish(*apart, early ? *std::move(early) : gather(*apart, use), use);
    }
  });
}

TEST_CASE("ranks may finish what has started on cards before or after the group's next collective") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, [](Communicator& comm) {
    for (int use = 0; use < 4; ++use) {
      Pending first = gather(comm, use), second = gather(comm, use + 10);
      if (even(comm)) finish(comm, std::move(first), use);
      sum(comm, use);
      if (!even(comm)) finish(comm, std::move(first), use);
      finish(comm, std::move(second), use + 10);
    }
  });
}

TEST_CASE("ranks may start in groups in different orders, and finish before or after a collective of another group") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, [](Communicator& comm) {
    const auto one = comm.duplicate(), other = comm.duplicate();
    for (int use = 0; use < 4; ++use) {
      std::optional<Pending> in_one, in_other;
      if (even(comm)) in_one.emplace(gather(*one, use));
      in_other.emplace(gather(*other, use));
      if (!even(comm)) in_one.emplace(gather(*one, use));
      if (even(comm)) finish(*one, *std::move(in_one), use);
      sum(comm, use);
      finish(*other, *std::move(in_other), use);
      if (!even(comm)) finish(*one, *std::move(in_one), use);
    }
  });
}

TEST_CASE("a rank may drop what it has started on a card before others have started it") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, [](Communicator& comm) {
    const auto apart = comm.duplicate();
    const std::vector<double> sevens(64, 7);
    for (int use = 0; use < 4; ++use) {
      if (even(comm)) gather(*apart, use);
      std::vector<Tensor> after(4);  // take its memory, if that is free
      for (Tensor& x : after) x = Tensor::full({64}, 7, DType::f64, Device::cuda);
      sum(comm, use);
      if (!even(comm)) finish(*apart, gather(*apart, use), use);
      for (const Tensor& x : after) require(x.values() == sevens, "what was dropped still arrives");
    }
    if (even(comm))
      gather(*apart, 9);  // and then its group
    else
      finish(*apart, gather(*apart, 9), 9);
  });
}

TEST_CASE("a rank that fails between starts on cards that others have not made ends the job") {
  if (usable_cards() < 3) return;
  const auto begin = std::chrono::steady_clock::now();
  const auto program = [](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group), 60s));
    const auto apart = comm.duplicate();
    const Pending first = gather(*apart, 0);
    sum(comm, 0);
    if (even(comm)) sum(comm, 1);
    const Pending second = gather(*apart, 1);
    fail({"a fan has stopped"});
  };
  CHECK_THROWS_WITH(on_ranks_with_cards(3, program), Contains("a fan has stopped"));
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

// Rounds with a sum of all ranks each. What a round starts in the sum's group all ranks start before the sum; what it
// starts in other groups, of all ranks or without the first or the last, each rank starts before or after it. When a
// rank asks, finishes, drops and reads is at random.
class Schedule {
 public:
  Schedule(unsigned seed, Communicator& comm)
      : comm_(comm), everyone_(seed), own_(seed * 31 + static_cast<unsigned>(number(comm)) + 1) {
    for (auto& group : others_) group = comm.duplicate();
    others_.push_back(comm.split(number(comm) > 0 ? 0 : -1, 0));
    others_.push_back(comm.split(number(comm) + 1 < comm.size() ? 0 : -1, 0));
  }

  void run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (int i = draw(everyone_, 3); i > 0; --i) begin(comm_, true);
      std::vector<Communicator*> before, after;
      for (const auto& group : others_) {
        const int starts = draw(everyone_, 3), early = draw(own_, starts + 1);
        if (!group) continue;  // this rank is none of it
        for (int i = 0; i < starts; ++i) (i < early ? before : after).push_back(group.get());
      }
      begin_all(std::move(before));
      sum(comm_, round);
      begin_all(std::move(after));
      for (Begun& each : begun_) each.may_end = true;
      act();
    }
    while (!begun_.empty()) end(0);
    for (const auto& [gathered, ranks, use] : unread_) expect_gathered(gathered, ranks, use);
  }

 private:
  struct Begun {
    Pending pending;
    int use, ranks;
    bool may_end;  // all others start it whether or not this rank goes on
  };

  static int draw(std::mt19937& dice, int below) { return static_cast<int>(dice() % static_cast<unsigned>(below)); }

  void begin_all(std::vector<Communicator*> groups) {
    std::shuffle(groups.begin(), groups.end(), own_);
    for (Communicator* const group : groups) begin(*group, false);
  }
  void begin(Communicator& group, bool may_end) {
    const int use = 100 + count_[&group]++;
    begun_.push_back({gather(group, use), use, group.size(), may_end});
    act();
  }
  void act() {
    for (int i = draw(own_, 3); i > 0 && !begun_.empty(); --i) {
      const auto which = static_cast<size_t>(draw(own_, static_cast<int>(begun_.size())));
      const int what = draw(own_, 4);
      if (what == 0) begun_[which].pending.ready();
      if (what == 1) erase(which);
      if (what > 1 && begun_[which].may_end) end(which);
    }
  }
  void end(size_t which) {
    const Tensor gathered = begun_[which].pending.wait();
    if (draw(own_, 2) == 0)
      expect_gathered(gathered, begun_[which].ranks, begun_[which].use);
    else
      unread_.emplace_back(gathered, begun_[which].ranks, begun_[which].use);
    erase(which);
  }
  void erase(size_t which) { begun_.erase(begun_.begin() + static_cast<std::ptrdiff_t>(which)); }

  Communicator& comm_;
  std::mt19937 everyone_, own_;
  std::vector<std::unique_ptr<Communicator>> others_ = std::vector<std::unique_ptr<Communicator>>(2);
  std::map<Communicator*, int> count_;
  std::vector<Begun> begun_;
  std::vector<std::tuple<Tensor, int, int>> unread_;
};

TEST_CASE("random schedules of what is started on cards have the results of any other") {
  const char* const asked = std::getenv("SEEDS");
  const unsigned seeds = asked ? static_cast<unsigned>(std::atoi(asked)) : 30;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    on_cards(std::array{2, 3, 5}[seed % 3], [&](Communicator& comm) { Schedule(seed, comm).run(6); });
  }
}

}  // namespace test_nccl_started
