// SPDX-License-Identifier: Apache-2.0
// Counts of a rank's calls to its groups.
#include <thread>

#include "tests/collectives/transport_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/traffic.h"
#include "weft/collectives/run_ranks.h"

using namespace weft;

namespace {

// Runs a body on every rank, with a counting group and its count.
template <class Body> void on_counted_ranks(Body body) {
  for (const int n : {1, 2, 3, 5}) {
    INFO(n << " ranks");
    CHECK_NOTHROW(run_ranks(n, [&](std::unique_ptr<Transport> transport) {
      Traffic traffic;
      Communicator comm(counted(std::move(transport), traffic));
      body(comm, traffic);
    }));
  }
}

void expect_count(const Traffic& traffic, Verb verb, int64_t calls, int64_t bytes, Site site = Site::here()) {
  const Traffic::Count& count = traffic[verb];
  expect(count.calls == calls && count.bytes == bytes,
         text(verb) + ": " + text(count.calls) + " calls, " + text(count.bytes) + " bytes", site);
  expect((count.seconds > 0) == (calls > 0), text(verb) + ": " + text(count.seconds) + " seconds", site);
}

}  // namespace

TEST_CASE("calls and received bytes are counted by verb without changing results") {
  on_counted_ranks([](Communicator& comm, Traffic& traffic) {
    const int n = comm.size(), me = number(comm);
    const Tensor x = data_of(me, {4, 3});
    Rows rows;
    for (int r = 0; r < n; ++r) rows.push_back(r);  // rank 0 has none
    comm.all_reduce(x);
    comm.all_reduce(x);
    const Tensor all = comm.all_gather_v(data_of(me, {me, 2}), rows);
    expect_same_bits(all.slice(n * (n - 1) / 2 - (n - 1), n * (n - 1) / 2), data_of(n - 1, {n - 1, 2}));
    comm.broadcast(x, {n - 1});
    comm.barrier();
    expect_count(traffic, Verb::all_reduce, 2, 2 * 4 * 3 * 8);
    expect_count(traffic, Verb::all_gather_v, 1, me * 2 * 8);
    expect_count(traffic, Verb::broadcast, 1, me == n - 1 ? 4 * 3 * 8 : 0);
    expect_count(traffic, Verb::barrier, 1, 0);
    expect_count(traffic, Verb::reduce_scatter, 0, 0);
    expect(traffic.total().calls == 5, "five calls in all");
    const Traffic before = traffic;
    comm.barrier();
    expect(traffic.since(before).total().calls == 1, "one call since");
  });
}

TEST_CASE("calls are small if no rank has more than 32 bytes") {
  on_counted_ranks([](Communicator& comm, Traffic& traffic) {
    const int me = number(comm);
    comm.all_reduce(data_of(me, {4}));
    comm.all_reduce(data_of(me, {5}));
    comm.start(AllReduce{}, data_of(me, {4})).wait();
    Rows rows(static_cast<size_t>(comm.size()), 0);
    rows[0] = 5;
    comm.all_gather_v(data_of(me, {me == 0 ? 5 : 0}), rows);
    comm.barrier();
    expect(traffic[Verb::all_reduce].small_calls == 2, "two sums of 32 bytes");
    expect(traffic[Verb::all_gather_v].small_calls == 0, "a gathering of 40 bytes of rank 0");
    expect(traffic[Verb::barrier].small_calls == 1, "a barrier");
  });
}

TEST_CASE("a started and awaited collective counts as one call") {
  on_counted_ranks([](Communicator& comm, Traffic& traffic) {
    comm.barrier();
    Pending sum = comm.start(AllReduce{}, data_of(number(comm), {5}));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    comm.barrier();
    const double before = traffic[Verb::all_reduce].seconds;
    const Tensor x = sum.wait();
    const double after = traffic[Verb::all_reduce].seconds;
    expect_same_bits(x, comm.all_reduce(data_of(number(comm), {5})));
    expect_count(traffic, Verb::all_reduce, 2, 2 * 5 * 8);
    expect(before > 0 && after > before, "both halves take time");
    expect(before < 0.3, "what lies between the halves is not counted");
  });
}

TEST_CASE("traffic of subgroups and messages is counted") {
  on_counted_ranks([](Communicator& comm, Traffic& traffic) {
    const auto half = comm.split(number(comm) % 2 ? 1 : comm.size() > 2 ? 0 : -1);
    if (half) half->all_reduce(data_of(number(comm), {7}));
    expect_count(traffic, Verb::split, 2, 8);  // what ranks choose, and the split itself
    expect_count(traffic, Verb::all_reduce, half ? 1 : 0, half ? 7 * 8 : 0);
    if (comm.size() == 1) return;
    if (number(comm) == 0) comm.send(data_of(0, {9}), {1});
    if (number(comm) == 1) comm.receive({9}, DType::f64, Device::cpu, {0});
    expect_count(traffic, Verb::send, number(comm) == 0, number(comm) == 0 ? 9 * 8 : 0);
    expect_count(traffic, Verb::receive, number(comm) == 1, 0);
  });
}

TEST_CASE("time that a rank waits is counted as its time") {
  run_ranks(2, [](std::unique_ptr<Transport> transport) {
    Traffic traffic;
    Communicator comm(counted(std::move(transport), traffic));
    comm.barrier();
    if (number(comm) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const double before = traffic.total().seconds;
    comm.all_reduce(data_of(number(comm), {3}));
    const double waited = traffic.total().seconds - before;
    expect(number(comm) == 1 ? waited < 0.3 : waited > 0.3, "rank " + text(number(comm)) + ": " + text(waited));
  });
}

TEST_CASE("rank 0 gets the counts of every rank") {
  on_counted_ranks([](Communicator& comm, Traffic& traffic) {
    for (int i = 0; i <= number(comm); ++i) traffic[Verb::send].bytes += 100;
    const std::vector<Traffic> all = gather_traffic(traffic, comm);
    expect(all.size() == (number(comm) == 0 ? static_cast<size_t>(comm.size()) : 0), "one for each rank, on rank 0");
    for (size_t r = 0; r < all.size(); ++r)
      expect(all[r][Verb::send].bytes == 100 * (static_cast<int64_t>(r) + 1) && all[r][Verb::gather].calls == 0,
             "rank " + text(r));
  });
}

TEST_CASE("a counting transport passes the transport checks") {
  const int n = GENERATE(1, 2, 3);
  const bool noted = GENERATE(false, true);
  run_ranks(n, [noted](std::unique_ptr<Transport> transport) {
    Traffic traffic;
    Timeline timeline;
    const bool of_cards = transport->shows_device_memory(), in_order = transport->keeps_stream_order();
    const auto counting = counted(std::move(transport), traffic, noted ? &timeline : nullptr);
    expect(counting->shows_device_memory() == of_cards && counting->keeps_stream_order() == in_order, "other memory");
    checks::everything_works(*counting);
  });
}
