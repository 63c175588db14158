// SPDX-License-Identifier: Apache-2.0
// What calls cost, against closed forms, and what follows for steps on other numbers of ranks.
#include <cmath>
#include <mutex>
#include <thread>

#include "apps/shared/run/sessions.h"
#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"
#include "tools/weft/plan/measured_link.h"
#include "tools/weft/plan/plan.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/data/files/input_file.h"
#include "weft/engine/text/units.h"

using namespace weft;
using namespace weft::plan;
using Catch::Contains;

namespace {

void expect_cost(const MessageCost& cost, double rounds, double messages, double bytes) {
  CHECK(cost.rounds == rounds);
  CHECK(cost.messages == messages);
  CHECK(cost.bytes == Approx(bytes));
}

// A run of ten steps of a second on so many ranks, each with 8 images. Every rank sums 4,000 bytes and three numbers,
// gathers 100 bytes of each rank, and scatters the sums of as many.
RecordedRun run_on(int64_t ranks, const std::filesystem::path& folder, double seconds = 1) {
  Traffic traffic;
  traffic[Verb::all_reduce] = {20, 10 * (4000 + 24), 0.5, 10};
  traffic[Verb::all_gather_v] = {10, 10 * 100, 0.5, 0};
  traffic[Verb::reduce_scatter_v] = {10, 10 * 100 * ranks, 0.5, 0};
  RunSession session{5, 15, 80.0 * static_cast<double>(ranks), {}, {}};
  for (int64_t r = 0; r < ranks; ++r) session.ranks.push_back({10 * seconds, 1, 0}), session.traffic.push_back(traffic);
  std::filesystem::create_directories(folder);
  put(folder / "sessions.json", json({RunSession(), session}));
  return read_run(folder);
}

}  // namespace

TEST_CASE("a call receives the bytes of the best algorithm, in as many messages as the link makes it choose") {
  constexpr double size = 40000;
  const Link far{1e-6, 1.25e8, 0}, busy{0, 1.25e9, 1e-3};
  for (const int64_t n : {2, 4, 16, 256}) {
    INFO(n << " ranks");
    const auto others = static_cast<double>(n - 1);
    const double slices = size * others / static_cast<double>(n), doublings = std::log2(static_cast<double>(n));
    expect_cost(comparison(Verb::barrier, n, far), doublings, doublings, 64 * others);
    for (const Link& link : {far, busy}) {
      const auto cost = [&](Verb verb) { return transfer(verb, size, n, link); };
      for (const Verb verb : {Verb::reduce_scatter_v, Verb::all_gather, Verb::gather, Verb::scatter, Verb::all_to_all})
        expect_cost(cost(verb), 1, others, slices);
      for (const Verb verb : {Verb::reduce, Verb::scan})
        expect_cost(cost(verb), n == 2 ? 1 : 2, n == 2 ? 1 : 2 * others, 2 * slices);
      expect_cost(cost(Verb::permute), 1, 1, size);
      expect_cost(cost(Verb::barrier), 0, 0, 0);
    }
    expect_cost(transfer(Verb::all_reduce, size, n, far), 1 + doublings, others + doublings, 2 * slices);
    expect_cost(transfer(Verb::reduce_scatter, size, n, far), 1, others, slices);
    expect_cost(transfer(Verb::broadcast, size, n, busy), 1, others, others * size);
    if (n == 2) continue;  // one way is as good as another
    expect_cost(transfer(Verb::all_reduce, size, n, busy), 2 * doublings, 2 * doublings, 2 * slices);
    expect_cost(transfer(Verb::reduce_scatter, size, n, busy), doublings, doublings, slices);
    expect_cost(transfer(Verb::broadcast, size, n, far), 2, 2 * others, 2 * slices);
  }
  expect_cost(transfer(Verb::all_reduce, 100, 4, busy), 2, 2, 3 * 100);  // few bytes are gathered whole
  expect_cost(transfer(Verb::all_reduce, size, 1, busy), 0, 0, 0);
  CHECK_THROWS_WITH(transfer(Verb::custom, size, 2, busy), Contains("collectives of its own (custom)"));
}

TEST_CASE(
    "many bytes move in parts as long as the link asks for, and few ranks gather them in a ring if messages are dear") {
  const double part = 1 << 18;  // on both links
  const Link far{1e-3, 1.25e8, 0}, busy{0, 1.25e9, 1e-3}, slow{0, 1.25e7, 1e-3};
  expect_cost(transfer(Verb::all_gather, 4 * part, 4, far), 1, 3, 3 * part);
  expect_cost(transfer(Verb::all_gather, 4 * 3 * part, 4, far), 1, 9, 9 * part);
  expect_cost(transfer(Verb::all_reduce, 4 * 3 * part, 4, far), 1 + 3, 3 * (3 + 3), 2 * 9 * part);
  expect_cost(transfer(Verb::all_reduce, 4 * 3 * part, 4, busy), 4, 4, 2 * 9 * part);  // halves are not cut
  expect_cost(transfer(Verb::permute, 2.5 * part, 4, far), 1, 3, 2.5 * part);
  expect_cost(transfer(Verb::permute, part, 4, slow), 1, 4, part);
  expect_cost(comparison(Verb::barrier, 16384, far), 16383, 16383, 64 * 16383);  // 1 MiB
  expect_cost(comparison(Verb::barrier, 2000, far), 1999, 1999, 64 * 1999);      // no power of two
}

TEST_CASE("the ranks of a node share its link") {
  const MessageCost cost{3, 10, 7000};
  const NodeLink link{{1e-3, 1e6, 1e-4}, 2};
  CHECK(seconds(cost, link, 2) == 0);
  CHECK(seconds(cost, link, 8) == Approx(3e-3 + 1e-3 + 2 * 7000 * 6 / 7. / 1e6));
  CHECK(seconds(cost, {{1e-3, 1e6, 0}, 1}, 8) == Approx(3e-3 + 7e-3));
}

TEST_CASE("a link is measured by a few sums, and is no faster than its messages") {
  static constexpr double late = 1e-3;  // seconds that each message takes at least
  constexpr int64_t bytes = 40'000;
  struct Slow : ForwardingTransport {
    using ForwardingTransport::ForwardingTransport;
    int exchanges = 0;
    void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
      require(++exchanges < 1000, "the link is measured without end");
      std::this_thread::sleep_for(std::chrono::duration<double>(late));
      ForwardingTransport::exchange(call, mine, longest, ranges, read);
    }
  };
  std::mutex mutex;
  std::vector<Link> links;
  run_ranks(3, [&](std::unique_ptr<Transport> threads) {
    Communicator comm(std::make_unique<Slow>(std::move(threads)));
    const Link link = measured_link(comm, bytes);
    const std::lock_guard lock(mutex);
    links.push_back(link);
  });
  REQUIRE(links.size() == 3);
  for (const Link& link : links) {
    CHECK(link.latency >= late / comparison(Verb::all_reduce, 3, link).rounds);
    CHECK(link.latency == links[0].latency);
    CHECK(link.bandwidth > 0);
    CHECK(link.bandwidth < 4 * bytes / late);
    CHECK(link.bandwidth == links[0].bandwidth);
  }
}

TEST_CASE("a recorded run gives the calls of a step, of its last session") {
  const ScratchFolder scratch;
  const RecordedRun run = run_on(4, scratch / "four");
  CHECK(run.ranks == 4);
  CHECK(run.seconds == 1);
  CHECK(run.images == 8);
  const auto calls = [&](Verb verb) { return run.calls[static_cast<size_t>(verb)]; };
  CHECK(calls(Verb::all_reduce).small == 1);
  CHECK(calls(Verb::all_reduce).large == 1);
  CHECK(calls(Verb::all_reduce).size == 4024);
  CHECK(calls(Verb::all_gather_v).size == 400);
  CHECK(calls(Verb::reduce_scatter_v).size == 400);
  CHECK(calls(Verb::broadcast).large == 0);
  CHECK(calls(Verb::broadcast).size == 0);  // a number, also where there is no call
}

TEST_CASE("a plan adds what the calls cost to the computing") {
  const ScratchFolder scratch;
  const NodeLink link{{1e-3, 1e6, 1e-5}};
  const PlannedStep step = Plan({run_on(4, scratch / "four")}, link, {}).at(16);
  const auto seconds = [&](Verb verb) { return step.seconds[static_cast<size_t>(verb)]; };
  const double compared = 4 * 1.01e-3 + 15 * 64e-6, sent = 1e-3 + 15 * 1e-5;
  CHECK(seconds(Verb::all_reduce) == Approx(2 * compared + sent + 4 * 1.01e-3 + 2 * 4024e-6 * 15 / 16));
  CHECK(seconds(Verb::all_gather_v) == Approx(compared + sent + 1600e-6 * 15 / 16));
  CHECK(seconds(Verb::reduce_scatter_v) == Approx(compared + sent + 1600e-6 * 15 / 16));
  CHECK(step.longest() == Verb::all_reduce);
  CHECK(step.computing == 1);
  CHECK(step.images_per_second == Approx(128 / step.whole()));
  CHECK(step.efficiency == Approx(1 / step.whole()));
  CHECK(Plan({run_on(4, scratch / "four")}, link, {.computing = 3}).at(16).computing == 3);
  const Plan over_link({run_on(4, scratch / "four")}, link, {.over_link = true});
  CHECK(over_link.at(4).whole() == Approx(1));
  CHECK(over_link.at(16).computing == over_link.at(4).computing);
}

TEST_CASE("several runs show how computing and sizes grow") {
  const ScratchFolder scratch;
  const Plan plan({run_on(8, scratch / "eight", 1.4), run_on(4, scratch / "four", 1)}, {{0, 1e6, 0}}, {});
  CHECK(plan.at(16).computing == Approx(2.2));
  CHECK(plan.at(16).efficiency < 1 / 2.2);
  const auto scattered = static_cast<size_t>(Verb::reduce_scatter_v);
  CHECK(plan.at(16).seconds[scattered] == Approx(1600e-6 * 15 / 16 + 15 * 64e-6));
  RecordedRun smaller = run_on(8, scratch / "eight");
  smaller.images = 4;
  CHECK_THROWS_WITH(Plan({run_on(4, scratch / "four"), smaller}, {{0, 1e6}}, {}),
                    Contains("4 images in each step of the run on 8 ranks, and 8 on 4"));
}

TEST_CASE("what cannot be planned from is refused, by file") {
  const ScratchFolder scratch;
  CHECK_THROWS_AS(read_run(scratch / "none"), MissingInput);
  const auto refused = [&](const std::string& sessions, const std::string& why) {
    put(scratch / "sessions.json", sessions);
    CHECK_THROWS_AS(read_run(scratch.path), MalformedInput);
    CHECK_THROWS_WITH(read_run(scratch.path), Contains("sessions.json: ") && Contains(why));
  };
  refused("[]", "no session is recorded");
  refused("[{", "is missing");
  refused(R"([{"last_step":4,"images":1,"ranks":[]}])", "no ranks");
  const std::string ranks = R"("ranks":[{"seconds":1,"communication":0,"data":0,"traffic":{}}])";
  refused(R"([{"first_step":4,"last_step":4,"images":1,)" + ranks + "}]", "no steps");
  refused(R"([{"last_step":4,"images":0,)" + ranks + "}]", "the number of images is 0");
  refused(R"([{"last_step":4,"images":1,"ranks":[{"seconds":null,"communication":0,"data":0,"traffic":{}}]}])",
          "the time of a rank is nan seconds");
}

TEST_CASE("times and rates have units") {
  CHECK(parsed_seconds("50us") == Approx(50e-6));
  CHECK(parsed_seconds("1.5ms") == Approx(1.5e-3));
  CHECK(parsed_bytes_per_second("25Gbit") == 25e9 / 8);
  CHECK(parsed_bytes_per_second("3GB") == 3e9);
  CHECK(in_seconds(50e-6) == "50us");
  CHECK(in_seconds(2.5) == "2.5s");
  CHECK(in_bits_per_second(125e5) == "100Mbit");
  for (const char* wrong : {"", "5", "us", "-1us", "nanus", "5 us", "5min", "1Gbit"})
    CHECK_THROWS_WITH(parsed_seconds(wrong), Contains("is not a number with a unit, as 50us"));
  CHECK_THROWS_WITH(parsed_bytes_per_second("1us"), Contains("'1us'"));
}
