// SPDX-License-Identifier: Apache-2.0
// When ranks are in which call: events, their numbers across ranks, and the clocks of several machines.
#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/traffic.h"
#include "weft/collectives/run_ranks.h"

using namespace weft;

namespace {

using Events = Timeline::Events;
using Kind = Timeline::Kind;

// Runs a body on every rank, with a group whose calls are noted.
template <class Body> void on_noted_ranks(Body body) {
  for (const int n : {1, 2, 3, 5, 8}) {
    INFO(n << " ranks");
    CHECK_NOTHROW(run_ranks(n, [&](std::unique_ptr<Transport> transport) {
      Traffic traffic;
      Timeline timeline;
      Communicator comm(counted(std::move(transport), traffic, &timeline));
      body(comm, timeline);
    }));
  }
}

void sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

const Timeline::Event& only(const Events& events, Verb verb, Kind kind) {
  const Timeline::Event* found = nullptr;
  for (const Timeline::Event& event : events) {
    if (event.kind != kind || event.call.verb != verb) continue;
    expect(!found, "two events of " + text(verb));
    found = &event;
  }
  expect(found, "no event of " + text(verb));
  return *found;
}

}  // namespace

TEST_CASE("every rank of a collective has its event, with the same number and the same call") {
  on_noted_ranks([](Communicator& comm, Timeline& timeline) {
    const int n = comm.size(), me = number(comm);
    Rows rows;
    for (int r = 0; r < n; ++r) rows.push_back(r);  // rank 0 has none
    comm.all_reduce(data_of(me, {4, 3}), ReduceOp::sum, Site::here("first"));
    comm.all_gather_v(data_of(me, {me, 2}), rows);
    const auto part = comm.split(me % 3), again = comm.split(me % 3), even = comm.split(me % 2 ? -1 : 0);
    for (int i = 0; i <= me % 3; ++i) part->all_reduce(data_of(me, {me % 3 + 1}));
    again->broadcast(data_of(me, {5}), {0});
    if (even) even->barrier();
    Pending sum = comm.start(AllReduce{}, data_of(me, {7}));
    comm.barrier();
    sum.wait();
    const std::vector<Events> all = gather_timelines(timeline, comm);
    expect(all.size() == (me == 0 ? static_cast<size_t>(n) : 0), "one for each rank, on rank 0");
    struct Seen {
      std::string call;
      std::set<size_t> ranks;
      int halves = 0;
    };
    std::map<std::pair<uint64_t, int64_t>, Seen> collectives;
    for (size_t r = 0; r < all.size(); ++r) {
      double before = 0;
      for (const Timeline::Event& event : all[r]) {
        expect(before <= event.end && event.begin <= event.end, "events in the order of their ends");
        before = event.end;
        Seen& seen = collectives[{event.group, event.number}];
        const std::string call = text(event.call.verb) + event.call.name;
        expect(seen.call.empty() || seen.call == call, seen.call + " and " + call + " have one number");
        expect(seen.ranks.insert(r).second || event.kind == Kind::second_half, call + " has two events on a rank");
        seen.call = call;
        seen.halves += event.kind == Kind::first_half || event.kind == Kind::second_half;
      }
    }
    if (me != 0) return;
    std::map<std::set<size_t>, std::map<std::string, int>> calls;  // of the verbs, by the ranks
    for (const auto& [id, seen] : collectives) ++calls[seen.ranks][seen.call];
    std::set<size_t> whole, evens;
    for (int r = 0; r < n; ++r) {
      whole.insert(static_cast<size_t>(r));
      if (r % 2 == 0) evens.insert(static_cast<size_t>(r));
    }
    expect(calls[whole]["all_reducefirst"] == 1, "the first all_reduce on all ranks");
    expect(calls[whole]["split"] == 6, "three splits on all ranks, each after what they choose");
    if (n > 3) {
      for (int color = 0; color < 3; ++color) {
        std::set<size_t> members;
        for (int r = color; r < n; r += 3) members.insert(static_cast<size_t>(r));
        expect(calls[members]["all_reduce"] == color + 1, "sums in group " + text(color));
        expect(calls[members]["broadcast"] == 1, "a broadcast in the second group of the same ranks");
      }
      expect(calls[evens]["barrier"] == 1, "a barrier of the even ranks");
    }
    const auto in_halves = [](const auto& id_and_seen) { return id_and_seen.second.halves > 0; };
    expect(std::ranges::count_if(collectives, in_halves) == 1, "one collective in two halves");
    expect(std::ranges::find_if(collectives, in_halves)->second.halves == 2 * n, "both of them on every rank");
  });
}

TEST_CASE("a message has the same number where it is sent and where it is received") {
  on_noted_ranks([](Communicator& comm, Timeline& timeline) {
    const int n = comm.size(), me = number(comm);
    if (n == 1) return;
    for (int i = 0; i < 3; ++i) comm.send(data_of(me, {i + 1}), {(me + 1) % n});
    for (int i = 0; i < 3; ++i) comm.receive({i + 1}, DType::f64, Device::cpu, {(me + n - 1) % n});
    const std::vector<Events> all = gather_timelines(timeline, comm);
    std::map<std::pair<uint64_t, int64_t>, std::pair<std::vector<size_t>, std::vector<size_t>>> ends;
    for (size_t r = 0; r < all.size(); ++r)
      for (const Timeline::Event& event : all[r]) {
        auto& [senders, receivers] = ends[{event.group, event.number}];
        if (event.kind == Kind::send) senders.push_back(r);
        if (event.kind == Kind::receive) receivers.push_back(r);
        if (event.kind == Kind::send) expect(event.bytes == 8 * (event.number + 1), "in the order of sending");
      }
    size_t messages = 0;
    for (const auto& [id, places] : ends) {
      const auto& [senders, receivers] = places;
      if (senders.empty() && receivers.empty()) continue;
      ++messages;
      expect(senders.size() == 1 && receivers.size() == 1, "one sender, one receiver");
      expect(receivers[0] == (senders[0] + 1) % static_cast<size_t>(n), "the right one");
    }
    expect(messages == (me == 0 ? 3 * static_cast<size_t>(n) : 0), text(messages) + " messages");
  });
}

TEST_CASE("the time of a call reaches from its begin until the last rank has come") {
  on_noted_ranks([](Communicator& comm, Timeline& timeline) {
    const int last = comm.size() - 1;
    comm.barrier();
    const double begin = seconds_now();
    if (number(comm) == last) sleep(0.2);
    timeline.add("late", begin, seconds_now());
    comm.all_reduce(data_of(number(comm), {3}));
    const std::vector<Events> all = gather_timelines(timeline, comm);
    if (all.empty()) return;
    const Timeline::Event& late = only(all.back(), Verb::barrier, Kind::part);
    expect(late.call.name == std::string("late") && late.end - late.begin >= 0.2, "a part of the program");
    const double came = only(all.back(), Verb::all_reduce, Kind::whole).begin;
    expect(came >= late.end, "after that part");
    for (const Events& events : all)
      expect(only(events, Verb::all_reduce, Kind::whole).end >= came, "nobody leaves before");
  });
}

TEST_CASE("of a long run the first events are kept") {
  Timeline timeline(3);
  for (int i = 0; i < 6; ++i) timeline.add("step", i, i + 0.5);
  REQUIRE(timeline.events().size() == 4);
  CHECK(timeline.events()[2].call.name == std::string("step"));
  CHECK(timeline.events()[3].call.name == std::string("later events are left out"));
  CHECK(timeline.events()[3].begin == 3);
  CHECK(timeline.events()[3].end == 5.5);
}

TEST_CASE("events of several machines are told by the clock of rank 0") {
  on_noted_ranks([](Communicator& comm, Timeline& timeline) {
    const int machine = number(comm) / 2;
    const Clock clock{"machine " + text(machine), [=] { return seconds_now() + 1000 * machine; }};
    comm.barrier();
    timeline.add("here", clock.now(), clock.now());
    const std::vector<Events> all = gather_timelines(timeline, comm, clock);
    const double now = seconds_now();
    for (const Events& events : all)
      for (const Timeline::Event& event : events)
        if (event.kind == Kind::part)
          expect(std::abs(event.begin - now) < 100, text(event.begin - now) + " seconds away");
  });
}
