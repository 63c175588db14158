// SPDX-License-Identifier: Apache-2.0
// The parts of NCCL's group that need no card: slices and their order, over an exchange that only pretends to be
// between cards, and the watchdog.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "tests/collectives/pretended_exchange.h"
#include "tests/collectives/transport_checks.h"
#include "tests/support/catch.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/nccl/nccl.h"
#include "weft/collectives/transports/nccl/nccl_group.h"
#include "weft/collectives/transports/nccl/watch.h"

using namespace weft;
using namespace std::chrono_literals;
using Catch::Contains;

namespace test_nccl_group {

// Memory that hosts share is not on a card.
struct Cards : NcclGroup {
  using NcclGroup::NcclGroup;
  StorageHandle allocate_common(size_t, Site) override { return {}; }
};

void run(int n, size_t room, const std::function<void(Transport&)>& body) {
  run_ranks(
      n,
      [&](std::unique_ptr<Transport> threads) {
        Cards group(std::move(threads), [](Transport& host) { return std::make_unique<Pretended>(host); }, "cards",
                    {Device::cpu, room});
        body(group);
      },
      20s);
}

Call sum_of(const Tensor& x, ReduceOp op = ReduceOp::sum) { return describe(Verb::all_reduce, x, Site::here(), op); }

Tensor shown_tensor(int r, size_t size, int round) {
  const checks::Bytes bytes = checks::shown_by(r, size, round);
  Tensor x({static_cast<int64_t>(size)}, DType::u8);
  std::copy(bytes.begin(), bytes.end(), x.mutate<std::byte>());
  return x;
}

// Rank r shows r * uneven bytes less than rank 0. The values are overwritten at once if the others hold copies.
std::unique_ptr<Transport::Request> start(Transport& group, size_t size, size_t uneven, int round, bool shared) {
  Tensor x = shown_tensor(group.rank(), size - static_cast<size_t>(group.rank()) * uneven, round);
  const Tensor other = shared ? x : Tensor();
  auto started = group.start(checks::call(Verb::all_gather_v), shared ? x : std::move(x), size);
  if (shared) std::fill_n(x.mutate<uint8_t>(), x.size(), 0);
  return started;
}

void finish(Transport::Request& started, size_t size, size_t uneven, int ranks, int round) {
  started.finish([&](const Transport::Part& part) {
    require(part.first == 0 && part.last == size, "start: one part is expected");
    for (int r = 0; r < ranks; ++r)
      for (size_t i = 0; i < size - static_cast<size_t>(r) * uneven; ++i)
        require(part.peers[static_cast<size_t>(r)][i] == checks::pattern(r, i, round), "start: byte ", i, " of rank ",
                r, " in round ", round);
  });
}

TEST_CASE("a card group gathers and reduces data of any size, in one slice or many") {
  const int n = GENERATE(1, 2, 3, 5, 8);
  const size_t room = GENERATE(size_t{4096}, size_t{64} << 20);
  run(n, room, [&](Transport& group) {
    for (const size_t size : {0, 1, 63, 64, 65, 4096, 10'000}) {
      checks::all_see_all(group, size, size / 3);
      checks::all_sum(group, size, true);
      checks::all_sum(group, size, false);
    }
  });
}

TEST_CASE("a card group passes the transport checks") { run(3, 500'000, checks::everything_works); }

TEST_CASE("collectives started on cards can be finished in any order or dropped, with other calls in between") {
  const int n = GENERATE(1, 2, 3, 5);
  run(n, 4096, [&](Transport& group) {
    const auto a = start(group, 1000, 100, 1, false), b = start(group, 50'000, 1, 2, true),
               never = start(group, 300, 0, 3, false), none = start(group, 0, 0, 4, false);
    finish(*start(group, 700, 10, 5, true), 700, 10, n, 5);
    checks::all_sum(group, 5000, true);
    finish(*none, 0, 0, n, 4);
    finish(*b, 50'000, 1, n, 2);
    if (group.rank() == 0) finish(*never, 300, 0, n, 3);
    checks::all_see_all(group, 9000, 10);
    finish(*a, 1000, 100, n, 1);
    start(group, 800, 0, 6, false);
  });
  CHECK(Pretended::left_behind == 0);  // what is left would point into memory that is in use elsewhere by now
}

TEST_CASE("what is started on cards is ready when it has arrived, and a group's work arrives in order") {
  const int n = GENERATE(1, 2, 3, 5);
  run(n, 4096, [&](Transport& group) {
    const auto a = start(group, 700, 50, 1, false), b = start(group, 300, 0, 2, true),
               c = start(group, 500, 10, 3, false);
    require(!a->ready() && !b->ready() && !c->ready(), "ready: nothing has arrived");
    checks::barrier(group);
    finish(*b, 300, 0, n, 2);
    require(a->ready() && b->ready() && !c->ready(), "ready: the first two have arrived");
    checks::barrier(group);
    finish(*c, 500, 10, n, 3);
    finish(*a, 700, 50, n, 1);
  });
}

TEST_CASE("ranks of a card group may finish what they have started before or after its next call") {
  const int n = GENERATE(2, 3, 5);
  run(n, 4096, [&](Transport& group) {
    for (int round = 0; round < 5; ++round) {
      const auto started = start(group, 700, 50, round, false);
      if (group.rank() % 2 == 0) finish(*started, 700, 50, n, round);
      checks::all_see_all(group, 900, 10, round + 1);
      if (group.rank() % 2 == 1) finish(*started, 700, 50, n, round);
    }
  });
}

TEST_CASE("ranks may start on cards before or after a call of another group, and drop it") {
  const int n = GENERATE(2, 3, 5);
  run(n, 4096, [&](Transport& group) {
    const auto apart = group.split(0, 0, Site::here());
    for (int round = 0; round < 6; ++round) {
      std::unique_ptr<Transport::Request> started;
      if (group.rank() % 2 == 0) started = start(*apart, 700, 50, round, false);
      if (round % 3 == 0) started = nullptr;
      checks::all_sum(group, 300, true);
      if (group.rank() % 2 == 1) started = start(*apart, 700, 50, round, false);
      if (started) finish(*started, 700, 50, n, round);
    }
  });
  CHECK(Pretended::left_behind == 0);
}

TEST_CASE("a rank that starts and drops more on its card than fit at once waits until others have started them") {
  run(3, 4096, [&](Transport& group) {
    if (group.rank() > 0) std::this_thread::sleep_for(50ms);
    for (size_t i = 0; i < Transport::max_started + 50; ++i) start(group, 300, 0, 1, false);
    finish(*start(group, 700, 50, 2, false), 700, 50, 3, 2);
  });
}

TEST_CASE("blocks are gathered in one slice or many, as a whole or started, whether they are equal or not") {
  const int n = GENERATE(1, 2, 3, 5);
  const bool equal = GENERATE(true, false);
  run(n, 4096, [&](Transport& group) {
    const auto size_of_rank = [&](int r) { return equal ? size_t{5000} : static_cast<size_t>(3000 * r); };
    std::vector<Transport::Range> of_peers;
    for (int r = 0; r < n; ++r) of_peers.push_back({0, size_of_rank(r)});
    const std::vector<Transport::Range> by_peers(of_peers.size(), {0, size_of_rank(group.rank())});
    const size_t longest = size_of_rank(n - 1);
    const Tensor mine = shown_tensor(group.rank(), size_of_rank(group.rank()), 3);
    std::vector<size_t> seen(of_peers.size());
    const auto read = [&](const Transport::Part& part) {
      for (size_t r = 0; r < seen.size(); ++r) {
        const Transport::Range here = part.of(r);
        for (size_t i = here.first; i < std::min(here.last, of_peers[r].last); ++i, ++seen[r])
          require(part.peers[r][i - here.first] == checks::pattern(static_cast<int>(r), i, 3), "byte ", i, " of rank ",
                  r);
      }
    };
    const Call call = describe(Verb::all_gather_v, Site::here());
    group.exchange(call, {mine.data<std::byte>(), mine.bytes()}, longest, {of_peers, by_peers},
                   [&](const Transport::Part& part) {
                     require(part.last <= size_t{4096} / of_peers.size(), "a slice of ", part.last, " bytes");
                     read(part);
                   });
    group.start(call, mine, longest, {of_peers, by_peers})->finish(read);
    for (int r = 0; r < n; ++r)
      require(seen[static_cast<size_t>(r)] == 2 * size_of_rank(r), "not all bytes of rank ", r, " were read");
  });
}

TEST_CASE("a library reduction is used only where it equals ours up to the order of summation") {
  run(3, 4096, [](Transport& group) {
    const Tensor x = Tensor::uniform({5003}, {3, static_cast<uint64_t>(group.rank())});
    Tensor any = Tensor::like(x), ordered = Tensor::like(x);
    const auto shown = std::as_bytes(std::span(x.data<float>(), 5003));
    const auto add = [&](Tensor& y, bool in_any_order) {
      checks::add_all(group, shown, std::as_writable_bytes(std::span(y.mutate<float>(), 5003)), sum_of(x),
                      in_any_order);
    };
    add(any, true), add(ordered, false);
    require(any.values() == ordered.values(), "the sums differ");
    require(group.reduces_in_any_order(sum_of(x), x.bytes()), "a sum has no order");
    for (const ReduceOp op : {ReduceOp::maximum, ReduceOp::minimum})
      require(!group.reduces_in_any_order(sum_of(x, op), x.bytes()), op, " of floats");
  });
}

TEST_CASE("ranks agree on the call and the byte counts before anything goes to a card") {
  const auto failure = [](const std::function<void(Transport&)>& body) {
    try {
      run(3, 4096, body);
    } catch (const Fault& fault) {
      return text(fault.exit_code) + " " + fault.what();
    }
    return std::string("no failure");
  };
  CHECK_THAT(failure([](Transport& group) { checks::all_sum(group, group.rank() == 1 ? 100 : 200, false); }),
             Contains("87 collective mismatch: the ranks expect different numbers of bytes in all_reduce"));
  CHECK_THAT(failure([](Transport& group) {
               if (group.rank() == 1) return checks::all_see_all(group, 800);
               checks::all_sum(group, 200, false);
             }),
             Contains("87 collective mismatch") && Contains("all_reduce") && Contains("all_gather_v"));
}

TEST_CASE("an error says if NCCL is missing, if there is no card, or if ranks share one") {
  run_ranks(2, [](std::unique_ptr<Transport> group) {
    take_card(0);
    const std::string obstacle = obstacle_to_nccl(*group);
    // Catch's own checks are not thread-safe.
    const char* known[] = {"built without NCCL", "rank 0 has no card", "ranks 0 and 1 share a card"};
    expect(std::any_of(std::begin(known), std::end(known),
                       [&](const char* text) { return obstacle.find(text) != std::string::npos; }),
           obstacle);
    expect_refusal([&] { connect_nccl(std::move(group)); }, {"transport nccl: ", obstacle.c_str()});
  });
}

struct Card : Watch::Watched {
  std::atomic<uint64_t> done = 0;
  std::atomic<bool> queued = false, aborted = false, broken = false;
  uint64_t seen = 0;  // the last work reported as done

  Watch::Stage stage(size_t slot) override {
    require(slot == Watch::slot(seen + 1), "watch: asked for slot ", slot, " after ", seen, " were done");
    if (seen < done) return ++seen, Watch::Stage::done;
    return queued ? Watch::Stage::queued : Watch::Stage::running;
  }
  std::optional<Fault> error(const Call& call) override {
    if (broken) return Fault(exit_codes::peer_died, "a cable is unplugged in " + call.text());
    return {};
  }
  void abort() override { aborted = true; }
};

void begin_work(Watch& watch, Verb verb = Verb::barrier) {
  watch.next();
  watch.begin(checks::call(verb));
}

template <class Done> bool soon(Done done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(1ms);
  return done();
}

TEST_CASE("a card that waits for peers beyond the deadline is stopped, and the call is named") {
  Card card;
  Watch watch(card, 50ms);
  begin_work(watch, Verb::all_gather);
  CHECK(soon([&] { return card.aborted.load(); }));
  try {
    watch.next();
    FAIL("no fault");
  } catch (const Fault& fault) {
    CHECK(fault.exit_code == exit_codes::deadline);
    CHECK_THAT(fault.what(), Contains("50 ms") && Contains("all_gather at") && Contains("test_nccl_group.cpp"));
  }
  CHECK_NOTHROW(watch.throw_unreported());
}

TEST_CASE("work queued behind a rank's own work, or done in time, is not reported as a fault") {
  Card card;
  card.queued = true;
  Watch watch(card, 300ms);
  for (int i = 0; i < 4; ++i) begin_work(watch);
  std::this_thread::sleep_for(500ms);
  card.queued = false;
  for (; card.done < 4; ++card.done) std::this_thread::sleep_for(100ms);
  CHECK(soon([&] { return watch.is_done(4); }));
  std::this_thread::sleep_for(400ms);
  CHECK(watch.next() == 5);
  CHECK_FALSE(card.aborted);
}

TEST_CASE("whether work on a card is done is checked when somebody asks, and an error is thrown there") {
  Card card;
  Watch watch(card, 60s);
  begin_work(watch);
  CHECK_FALSE(watch.look(1));
  card.done = 1;
  CHECK(watch.look(1));
  CHECK(watch.is_done(1));
  card.broken = true;
  CHECK_THROWS_WITH(watch.look(1), Contains("a cable is unplugged in barrier"));
  CHECK_THROWS_WITH(watch.look(1), Contains("a cable is unplugged in barrier"));
}

TEST_CASE("the work in flight on a card is bounded, and an error of its library is reported at once") {
  Card card;
  Watch watch(card, 10s);
  for (uint64_t i = 0; i < Watch::capacity; ++i) begin_work(watch);
  CHECK_FALSE(watch.is_done(1));
  std::thread([&] {
    std::this_thread::sleep_for(30ms);
    card.done = 1;
  }).detach();
  CHECK(watch.next() == Watch::capacity + 1);
  CHECK(watch.is_done(1));
  CHECK_FALSE(watch.is_done(2));
  card.broken = true;
  CHECK(soon([&] { return card.aborted.load(); }));
  CHECK_THROWS_WITH(watch.throw_unreported(), Contains("a cable is unplugged in barrier"));
  CHECK_NOTHROW(watch.throw_unreported());
}

}  // namespace test_nccl_group
