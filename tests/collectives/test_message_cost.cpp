// SPDX-License-Identifier: Apache-2.0
// How data move is chosen from what a link takes for it, alike on all ranks.
#include "tests/support/catch.h"
#include "weft/collectives/transports/message_schedule.h"
#include "weft/engine/tensor/error.h"

using namespace weft;
using Catch::Contains;

TEST_CASE("a link is written as its latency, its bandwidth and perhaps its overhead") {
  const Link link = parsed_link("50us,10Gbit,2us");
  CHECK(link.latency == Approx(50e-6));
  CHECK(link.bandwidth == Approx(1.25e9));
  CHECK(link.overhead == Approx(2e-6));
  CHECK(text(link) == "50us,10Gbit,2us");
  CHECK(parsed_link("1ms,100Mbit").overhead == Link().overhead);
  for (const char* wrong : {"", "50us", "50us,", "fast,1Gbit", "50us,1Gbit,1us,1us", "1Gbit,50us"})
    CHECK_THROWS_WITH(parsed_link(wrong), Contains(std::string("'") + wrong + "'") || Contains("is not a number"));
  CHECK_THROWS_WITH(parsed_link("50us,0Gbit"), Contains("a link of 0Gbit carries nothing"));
}

TEST_CASE("what is chosen takes least time, for any number of ranks and bytes") {
  for (const Link& link : {Link{20e-6, 1.25e8, 1e-6}, Link{0, 1.25e9, 1e-3}, Link{1e-3, 1e6, 0}})
    for (const int64_t ranks : {2, 3, 4, 5, 8, 16, 256, 1000})
      for (const double bytes : {8., 256., 257., 512., 1e3, 1e4, 1e5, 1e6, 1e8}) {
        INFO(text(link) << ", " << ranks << " ranks, " << bytes << " bytes");
        const auto seconds = [&](const MessageCost& cost) { return cost.seconds(link); };
        const auto way = [&](Movement movement) { return message_schedule(movement, bytes, ranks, link).way; };
        if (bytes <= 32) {
          for (const Movement movement : {Movement::sum, Movement::some_sums, Movement::one_to_all, Movement::portions})
            CHECK(way(movement) == Way::with_the_call);
          continue;
        }
        const bool few = static_cast<double>(ranks) * bytes <= 1024, power = (ranks & (ranks - 1)) == 0;
        const double by_halving = seconds(cost_of_halving(bytes, ranks)),
                     in_slices = seconds(cost_of_slices(link, bytes, ranks));
        const bool halving = !few && power && ranks > 2 && by_halving < 0.9 * in_slices;
        CHECK(way(Movement::sum) == (few ? Way::by_mpi : halving ? Way::by_halving : Way::in_slices));
        CHECK(way(Movement::shares) == (halving ? Way::by_halving : Way::directly));
        CHECK(way(Movement::some_sums) == (bytes <= 256 || ranks == 2 ? Way::directly : Way::in_slices));
        const bool gathers = in_slices >= seconds(cost_of_gathering(link, bytes, ranks));
        const bool with_calls = bytes <= static_cast<double>(32 * ranks);
        CHECK(way(Movement::gathering) == (with_calls ? Way::with_the_call : gathers ? Way::by_mpi : Way::directly));
        const double sliced = seconds(cost_of_sliced_copies(link, bytes, ranks)),
                     whole = seconds(cost_of_copies(link, bytes, ranks));
        CHECK(way(Movement::one_to_all) == (ranks > 2 && sliced < whole ? Way::in_slices : Way::directly));
      }
}

TEST_CASE("a part is what a link carries in a round trip and half a millisecond, within limits") {
  CHECK(bytes_of_part({50e-6, 2.5e8}, 4) == 150000 / 64 * 64);
  CHECK(bytes_of_part({5e-6, 1.25e8}, 4) == 1 << 16);
  CHECK(bytes_of_part({5e-6, 1e6}, 4) == 1 << 16);
  CHECK(bytes_of_part({1e-3, 1.25e8}, 4) == 1 << 18);
  CHECK(bytes_of_part({5e-6, 1.25e9}, 1024) == 1 << 16);
  CHECK(bytes_of_part({5e-6, 1.25e9}, 1000) == (1 << 26) / 1000 / 64 * 64);
}

TEST_CASE("two parts are on their way at a time, so only a latency longer than a part shows again") {
  const double part = 1 << 18;
  for (const double parts : {1, 2, 3, 4, 5, 6}) {
    INFO(parts << " parts");
    const auto seconds = [&](const Link& link) { return cost_of_copies(link, parts * part, 2).seconds(link); };
    const double one = part / 1.25e8;
    CHECK(seconds({1e-3, 1.25e8, 0}) == Approx(1e-3 + parts * one));
    const int later = parts <= 2 ? 0 : parts <= 4 ? 1 : 2;  // pairs, which begin when the first part of a pair is there
    CHECK(seconds({10e-3, 1.25e8, 0}) == Approx(10e-3 + parts * one + later * (10e-3 - one)));
  }
  const Link far{1e-3, 1.25e8, 0};
  CHECK(cost_of_sum(far, 4 * 5 * part, 4).rounds == Approx(1 + 3));
  CHECK(cost_of_gathering(far, 4 * 5 * part, 4).rounds == Approx(5 * 3));
  CHECK(cost_of_sliced_copies(far, 4 * 5 * part, 4).rounds == Approx(2 * 5));
}

TEST_CASE("all ways of a collective bring a rank the same bytes") {
  for (const int64_t ranks : {2, 4, 64}) {
    const double others = 1e6 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    for (const MessageCost& cost :
         {cost_of_slices(Link(), 1e6, ranks), cost_of_halving(1e6, ranks), cost_of_gathering(Link(), 1e6, ranks)})
      CHECK(cost.bytes == Approx(others));
    CHECK(cost_of_halving(1e6, ranks).messages <= cost_of_slices(Link(), 1e6, ranks).messages);
  }
}

TEST_CASE("a report says what is chosen, and up to how many bytes") {
  const std::string near = choices_on({20e-6, 1.25e8, 0}, 4), busy = choices_on({1e-6, 1.25e8, 1e-4}, 16);
  CHECK_THAT(near, Contains("latency 20us, overhead of a message 0ns, bandwidth 1Gbit; sums by pairwise exchange;"));
  CHECK_THAT(near, Contains("broadcast to each rank up to 1 KiB, by scatter and all_gather beyond"));
  CHECK_THAT(busy, Contains("sums by recursive halving;"));
  CHECK_THAT(choices_on({20e-6, 1.25e8, 0}, 3), Contains("sums by pairwise exchange;"));
  CHECK_THAT(choices_on({1e-6, 1.25e8, 1e-4}, 16, true), Contains("sums in slices, one for each node;"));
  CHECK_THAT(choices_on({20e-6, 1.25e8, 0}, 2), Catch::EndsWith("broadcast to each rank"));
}
