// SPDX-License-Identifier: Apache-2.0
// Ranks that wait for each other: a deadlock is named, and nothing else is called one.
#include <random>
#include <thread>

#include "tests/support/catch.h"
#include "weft/collectives/transports/job/job.h"
#include "weft/collectives/transports/job/waiting.h"
#include "weft/collectives/unfinished.h"

using namespace weft;
using namespace std::chrono_literals;

namespace test_wait_cycles {

// Two ranks of a job. Rank 0 waits for what rank 1 never does.
struct Pair {
  std::shared_ptr<Job> job = Job::create(Memory::of_this_process(size_t{1} << 30), 2, 600s);
  std::atomic<uint64_t> never = 0;
  std::atomic<bool> ended = false;

  Pair() {
    const Tensor x = Tensor::zeros({3});
    for (const int rank : {0, 1}) {
      job->join(rank);
      job->begin(rank, describe(Verb::all_reduce, x, Site::here(rank == 0 ? "zero" : "one")), 0, 2);
    }
  }
  std::jthread rank_0() {
    return std::jthread([this] {
      try {
        for (job->begin_wait(0, 1, job->offset_of(&never), 1); !ended;) job->check_wait(0);
      } catch (const Fault&) {  // rank 1 has told why
      }
    });
  }
  // Rank 1 waits for rank 0 until the word has the value.
  void wait_for(const std::atomic<uint64_t>& word, uint64_t value) {
    job->begin_wait(1, 0, job->offset_of(&word), value);
    while (word < value) job->check_wait(1);
    job->end_wait(1);
  }
};

TEST_CASE("two ranks that wait for each other are told so, with their calls") {
  Pair pair;
  const std::jthread rank_0 = pair.rank_0();
  CHECK_THROWS_WITH(pair.wait_for(pair.never, 1), Catch::Contains("these ranks wait for each other") &&
                                                      Catch::Contains("zero") && Catch::Contains("one"));
}

// It may do so between the moment at which the other looks at a wait and the one at which it looks at what was done.
TEST_CASE("a rank that goes on with what another waits for is in no deadlock, whenever the other looks") {
  struct Steps final : Transport::Request {
    std::atomic<uint64_t> wanted = 0, done = 0;
    std::minstd_rand random;
    bool ready() override {
      for (auto pauses = random() % 400; pauses > 0; --pauses) relax();
      done = wanted.load();
      return false;
    }
    void finish(Transport::Read) override {}
  } steps;
  Pair pair;
  pair.job->unfinished(0)->add(steps);
  const std::jthread rank_0 = pair.rank_0();
  CHECK_NOTHROW([&] {
    for (uint64_t step = 1; step <= 3000; ++step) {
      steps.wanted = step;
      pair.wait_for(steps.done, step);
    }
  }());
  pair.ended = true;
}

}  // namespace test_wait_cycles
