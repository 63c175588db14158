// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <clocale>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <new>
#include <thread>

#include "tests/collectives/transport_checks.h"
#include "tests/support/beyond_memory.h"
#include "tests/support/catch.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/job/job.h"
#include "weft/collectives/transports/job/waiting.h"
#include "weft/collectives/transports/nccl/watch.h"
#include "weft/collectives/transports/self.h"

using namespace weft;
using namespace std::chrono_literals;
using Catch::Contains;

namespace test_transports {

using Body = std::function<void(Transport&)>;

void run(int n, const Body& body, std::chrono::milliseconds deadline = 20s) {
  run_ranks(
      n, [&](std::unique_ptr<Transport> group) { body(*group); }, deadline);
}

// The message of a failing run, preceded by its exit code.
std::string failure(int n, const Body& body, std::chrono::milliseconds deadline = 20s) {
  try {
    run(n, body, deadline);
  } catch (const Fault& fault) {
    return text(fault.exit_code) + " " + fault.what();
  } catch (const std::exception& exception) {
    return std::string("exception ") + exception.what();
  }
  return "no failure";
}

// The machine may be busy, so only limits far from the usual time can show a mistake.
constexpr double long_before_the_deadline = 10;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void expose(Transport& group, const Call& call, size_t size = 64) {
  const std::vector<std::byte> mine(size);
  group.expose(call, mine, size, [](const Transport::Part&) {});
}
Call sum(const Shape& shape, DType dtype = DType::f32, const char* name = "", ReduceOp op = ReduceOp::sum) {
  return describe(Verb::all_reduce, Tensor::zeros(shape, dtype), Site::here(name), op);
}

TEST_CASE("threads exchange bytes, reduce, send and form groups on any number of ranks") {
  const int n = GENERATE(1, 2, 3, 5, 8);
  run(n, checks::everything_works);
}

TEST_CASE("a group of one needs no threads") {
  const auto self = connect_self();
  checks::everything_works(*self);
  CHECK(self->description() == "self (1 rank)");
}

TEST_CASE("thousands of collectives, reductions and messages in random sizes never mix up") {
  const int n = GENERATE(2, 3, 8);
  run(n, [](Transport& group) {
    uint64_t state = 88172645463325252u;  // the same on every rank
    for (int round = 0; round < 3000; ++round) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      const size_t size = state % 100 == 0 ? state % 200'000 : state % 3000;
      switch (state % 5) {
        case 0: checks::all_sum(group, size / 4, state % 2); break;
        case 1: checks::messages_arrive_in_order(group, 1, size % 300); break;
        case 2: expose(group, checks::call(Verb::barrier), 0); break;
        default: checks::all_see_all(group, size, size / 7, round);
      }
    }
  });
}

TEST_CASE("no rank leaves a collective while others still read its memory in place") {
  run(3, [](Transport& group) {
    std::vector<int> mine(100'000, group.rank());
    for (int round = 0; round < 20; ++round) {
      group.expose(checks::call(Verb::all_gather), std::as_bytes(std::span(mine)), mine.size() * sizeof(int),
                   [&](const Transport::Part& part) {
                     if (group.rank() == 2) std::this_thread::sleep_for(2ms);
                     for (int peer = 0; peer < 3; ++peer)
                       require(
                           *reinterpret_cast<const int*>(part.peers[static_cast<size_t>(peer)]) == round * 10 + peer,
                           "too late");
                   });
      for (int& x : mine) x += 10;
    }
  });
}

TEST_CASE("a mismatch of calls is reported with both calls and their lines") {
  struct Case {
    const char* what;
    Call usual, odd;
    std::vector<const char*> said;
  };
  const Case cases[] = {
      {"kind",
       sum({4}),
       describe(Verb::all_gather, Tensor::zeros({4}), Site::here()),
       {"all_reduce sum f32 (4)", "all_gather f32 (4)"}},
      {"count", sum({4}), sum({8}), {"(4)", "(8)"}},
      {"shape", sum({4, 2}), sum({2, 4}), {"(4, 2)", "(2, 4)"}},
      {"element type", sum({4}), sum({4}, DType::i64), {"f32 (4)", "i64 (4)"}},
      {"operation", sum({4}), sum({4}, DType::f32, "", ReduceOp::product), {"all_reduce sum", "all_reduce product"}},
      {"root",
       describe(Verb::broadcast, Site::here(), 0),
       describe(Verb::broadcast, Site::here(), 1),
       {"root 0", "root 1"}},
      {"order", sum({4}, DType::f32, "weights"), sum({4}, DType::f32, "bias"), {"'weights'", "'bias'"}},
      {"long names that end alike",
       sum({4}, DType::f32, "encoder.blocks.11.attention.query.weight"),
       sum({4}, DType::f32, "encoder.blocks.12.attention.query.weight"),
       {"'encoder.blo..n.query.weight~"}},
      {"long names that begin alike",
       sum({4}, DType::f32, "encoder.blocks.11.attention.query.weight"),
       sum({4}, DType::f32, "encoder.blocks.11.attention.key.weight"),
       {"'encoder.blo..n.query.weight~", "'encoder.blo..ion.key.weight~"}},
  };
  for (const Case& c : cases)
    for (int n : {2, 3, 4}) {
      INFO(c.what << ", " << n << " ranks");
      std::string said;
      const double seconds = seconds_of([&] {
        said = failure(n, [&](Transport& group) {
          for (int i = 0; i < 100; ++i) expose(group, c.usual);
          expose(group, group.rank() == n - 1 ? c.odd : c.usual);
        });
      });
      CHECK_THAT(said, Contains("87 collective mismatch") && Contains("call 101 of group 0"));
      for (const char* part : c.said) CHECK_THAT(said, Contains(part));
      CHECK_THAT(said, Contains("rank " + text(n - 1) + " is in") && Contains("test_transports.cpp:"));
      CHECK(seconds < long_before_the_deadline);
    }
}

TEST_CASE("a call that reduces says by which operation") {
  for (const Verb verb : {Verb::all_reduce, Verb::reduce_scatter, Verb::reduce_scatter_v, Verb::reduce, Verb::scan})
    CHECK_THAT(describe(verb, Tensor::zeros({4}), Site::here(), ReduceOp::maximum).text(),
               Contains(std::string(name(verb)) + " maximum f32 (4)"));
}

TEST_CASE("equal calls with different sizes are a mismatch") {
  CHECK_THAT(failure(2, [](Transport& group) { expose(group, sum({4}), 64u * static_cast<size_t>(group.rank() + 1)); }),
             Contains("87 collective mismatch"));
}

TEST_CASE("a mismatch is reported if only some ranks want a result in shared memory") {
  CHECK_THAT(failure(2,
                     [](Transport& group) {
                       const StorageHandle common = group.allocate_common(80'000, Site::here());
                       std::vector<std::byte> mine(80'000), own(80'000);
                       const std::span shared(static_cast<std::byte*>(common->data), own.size());
                       checks::add_all(group, mine, group.rank() == 0 ? shared : std::span(own), sum({20'000}));
                     }),
             Contains("87 collective mismatch") && !Contains("FINALIZE"));
}

TEST_CASE("a skipped collective is noticed at the next one or at exit") {
  for (int n : {2, 3, 4}) {
    const auto skip = [n](Transport& group) {
      for (int i = 0; i < 3; ++i)
        if (group.rank() != n - 1 || i != 1) expose(group, i == 1 ? sum({4}) : sum({5}));
    };
    CHECK_THAT(failure(n, skip), Contains("87 collective mismatch") && Contains("(4)") && Contains("(5)"));
  }
}

TEST_CASE("a rank that returns early while others wait for it is named, with the call they wait in") {
  for (int n : {2, 3, 5}) {
    const std::string said = failure(n, [](Transport& group) {
      if (group.rank() != 1) expose(group, sum({4}, DType::f32, "loss"));
    });
    CHECK_THAT(said, Contains("87 collective mismatch") && Contains("rank 1 is in") && Contains("FINALIZE") &&
                         Contains("'loss'"));
  }
}

TEST_CASE("a deadlock across groups is found long before the deadline") {
  std::string said;
  const double seconds = seconds_of([&] {
    said = failure(3, [](Transport& group) {
      const auto twin = group.split(0, 0, Site::here());
      expose(group.rank() == 1 ? *twin : group, sum({4}));
    });
  });
  CHECK_THAT(said, Contains("87 collective mismatch: these ranks wait for each other") && Contains("of group 0") &&
                       Contains("of group 1"));
  CHECK(seconds < long_before_the_deadline);
}

TEST_CASE("a rank that returns early is noticed from within a subgroup") {
  const std::string said = failure(4, [](Transport& group) {
    const auto half = group.split(group.rank() / 2, 0, Site::here());
    if (group.rank() != 3) expose(*half, sum({4}));
  });
  CHECK_THAT(said, Contains("87 collective mismatch") && Contains("FINALIZE") && Contains("rank 2 waits for rank 3"));
}

TEST_CASE("two ranks that both receive first are reported as a deadlock") {
  const std::string said = failure(2, [](Transport& group) {
    std::vector<std::byte> bytes(4);
    group.receive(checks::call(Verb::receive), {1 - group.rank()}, bytes);
  });
  CHECK_THAT(said,
             Contains("87") && Contains("rank 0 waits for rank 1 in call 1 of") && Contains("receive from rank 1"));
}

TEST_CASE("a message with another shape, or with no receiver, is a mismatch") {
  const auto message = [](Verb verb, const Shape& shape) { return describe(verb, Tensor::zeros(shape), Site::here()); };
  const std::vector<std::byte> sent(16);
  CHECK_THAT(failure(2,
                     [&](Transport& group) {
                       std::vector<std::byte> bytes(16);
                       if (group.rank() == 0)
                         group.send(message(Verb::send, {4}), {1}, sent);
                       else
                         group.receive(message(Verb::receive, {2, 2}), {0}, bytes);
                     }),
             Contains("87") && Contains("f32 (4) to rank 1") && Contains("f32 (2, 2) from rank 0"));
  CHECK_THAT(failure(2,
                     [&](Transport& group) {
                       if (group.rank() == 0) group.send(message(Verb::send, {4}), {1}, sent);
                     }),
             Contains("87") && Contains("never received"));
}

TEST_CASE("a missing rank is named after the deadline, with every rank's last call") {
  std::atomic<bool> over = false;
  std::string said;
  const double seconds = seconds_of([&] {
    said = failure(
        3,
        [&](Transport& group) {
          expose(group, sum({7}, DType::f32, "early"));
          if (group.rank() == 2) {
            while (!over) std::this_thread::sleep_for(1ms);
          } else {
            try {
              expose(group, sum({8}, DType::f32, "late"));
            } catch (...) {
              over = true;
              throw;
            }
          }
        },
        300ms);
  });
  CHECK_THAT(said, Contains("86 deadline") && Contains("for rank 2 in call 2") && Contains("'late'"));
  CHECK_THAT(said, Contains("rank 2, process") && Contains("finished ") && Contains("'early'"));
  CHECK(seconds > 0.29);
  CHECK(seconds < 10);
}

TEST_CASE("a rank that neither comes nor ends does not delay the deadline's report") {
  std::atomic<bool> over = false;
  std::string told;
  const auto body = [&](std::unique_ptr<Transport> group) {
    expose(*group, sum({7}, DType::f32, "early"));
    while (group->rank() == 1 && !over) std::this_thread::sleep_for(1ms);
    expose(*group, sum({8}, DType::f32, "late"));
  };
  const auto stuck = [&](int rank, const Fault& fault) {
    told = text(rank) + " " + text(fault.exit_code) + " " + fault.what();
    over = true;
  };
  CHECK_THROWS_AS(run_ranks(3, body, 300ms, stuck), Fault);
  CHECK_THAT(told, Contains(" 86 deadline: rank") && Contains("rank 1, process") && Contains("finished"));
  CHECK_THAT(told, Contains("rank 1 does not end, and no thread can be made to") && !Contains("rank 2 does not end"));
}

TEST_CASE("a rank that waits stops yielding after a time, however long others keep the core") {
  struct Failed {};
  FutexEvent never;
  int polls = 0;
  const auto poll = [&] { return ++polls < 0; };
  const auto fail = [] { throw Failed(); };
  CHECK_THROWS_AS(wait_for(SpinPolicy{0, 1 << 22}, never, 1ms, poll, fail), Failed);
  CHECK(polls < 1 << 20);
}

TEST_CASE("a busy rank suspends the others' deadlines for a limited time, and the report says what it does") {
  std::atomic<bool> failed = false;
  const auto busy_until = [&](const std::function<bool(double)>& done, std::chrono::milliseconds deadline) {
    std::barrier all_run(3);  // a thread may start late
    return failure(
        3,
        [&](Transport& group) {
          all_run.arrive_and_wait();
          expose(group, sum({7}));
          if (group.rank() == 1) {
            group.busy_with("writes runs/x");
            const auto began = std::chrono::steady_clock::now();
            while (!done(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()))
              std::this_thread::sleep_for(1ms);
            CHECK(group.busy_with("") == "writes runs/x");
          }
          try {
            expose(group, sum({8}));
          } catch (...) {
            failed = true;
            throw;
          }
        },
        deadline);
  };
  CHECK(busy_until([](double seconds) { return seconds > 3; }, 1s) == "no failure");
  const double seconds = seconds_of([&] {
    CHECK_THAT(busy_until([&](double) { return failed.load(); }, 500ms),
               Contains("86 deadline") && Contains(": writes runs/x, for ") && Contains("finished "));
  });
  CHECK(seconds > 5);
}

TEST_CASE("a rank that is lost while it reports its failure does not block the others forever") {
  const auto job = Job::create(Memory::of_this_process(size_t{1} << 30), 2, 300ms);
  const auto words = [&] { return std::span(job->at<int32_t>(0), 128); };  // words of the job's header
  const std::vector<int32_t> before(words().begin(), words().end());
  job->record(1, Fault(70, "never said"));
  int written = 0;
  for (size_t i = 0; i < before.size() && !written; ++i)
    if (before[i] == 0 && words()[i] == 2) written += words()[i] = 1;  // its value between begin and end
  REQUIRE(written == 1);
  const double seconds = seconds_of([&] { CHECK_THROWS_WITH(job->fail(0, Fault(86, "deadline")), "deadline"); });
  CHECK(seconds < 20);
  CHECK_THROWS_WITH(job->check(), Contains("lost before it said why"));
}

TEST_CASE("the watchdog does not count time in which it was suspended itself") {
  struct Card : Watch::Watched {
    std::atomic<int> looks = 0;
    std::atomic<bool> aborted = false;
    Watch::Stage stage(size_t) override {
      if (++looks == 2) std::this_thread::sleep_for(600ms);  // as if the process had been stopped
      return looks < 4 && !aborted ? Watch::Stage::running : Watch::Stage::done;
    }
    std::optional<Fault> error(const Call&) override { return {}; }
    void abort() override { aborted = true; }
  } card;
  Watch watch(card, 200ms);
  const uint64_t work = watch.next();
  watch.begin(sum({4}));
  while (!watch.is_done(work) && !card.aborted) std::this_thread::sleep_for(1ms);
  CHECK(!card.aborted);
}

TEST_CASE("an out-of-memory error on one rank ends all ranks with its own exit code") {
  const std::vector<std::function<void()>> ways = {[] { throw std::bad_alloc(); },
                                                   [] { Tensor::zeros({beyond_memory}); }};
  for (const auto& way : ways) {
    int code = 0;
    const auto body = [&](Transport& group) {
      if (group.rank() == 1) way();
      try {
        expose(group, sum({4}));
      } catch (const Fault& fault) {
        code = fault.exit_code;
        throw;
      }
    };
    CHECK_THROWS(run(2, body));
    CHECK(code == exit_codes::out_of_memory);
  }
}

TEST_CASE("a failure to create a thread ends all ranks with a clear error") {
  const pid_t child = fork();
  if (child == 0) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room = static_cast<rlim_t>(pages) * 4096 + (size_t{600} << 20);
    const rlimit limit{room, room};
    setrlimit(RLIMIT_AS, &limit);
    pthread_attr_t large_stacks;  // so large that no other allocation of a thread can be the first to fail
    pthread_attr_init(&large_stacks);
    pthread_attr_setstacksize(&large_stacks, size_t{256} << 20);
    pthread_setattr_default_np(&large_stacks);
    const std::string said = failure(200, [](Transport& group) { expose(group, sum({4})); });
    _exit(said.starts_with("exception run_ranks: no thread for rank ") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("WEFT_TIMEOUT is parsed independently of the locale, and bad values are refused") {
  const char* given = std::getenv("WEFT_TIMEOUT");
  const std::string before = given ? given : "";
  setenv("WEFT_TIMEOUT", "2.5", 1);
  const std::string language = std::setlocale(LC_ALL, nullptr);
  for (const char* other : {"C", "de_DE.UTF-8", "fr_FR.UTF-8"}) {
    std::setlocale(LC_ALL, other);
    CHECK(default_deadline() == 2500ms);
  }
  std::setlocale(LC_ALL, language.c_str());
  for (const char* wrong : {"", "abc", "inf", "nan", "1e16", "-1", "0", "2,5", "2.5 s"}) {
    setenv("WEFT_TIMEOUT", wrong, 1);
    INFO(wrong);
    CHECK_THROWS_WITH(default_deadline(), Contains("is not a number of seconds from 0.001 to 1000000"));
  }
  unsetenv("WEFT_TIMEOUT");
  CHECK(default_deadline() == 1min);
  if (given) setenv("WEFT_TIMEOUT", before.c_str(), 1);
}

TEST_CASE("an exception on one rank ends the others with an error that names it, and reaches the caller") {
  struct Odd : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  for (int n : {1, 2, 3, 8}) {
    std::atomic<int> told = 0;
    const auto body = [&](Transport& group) {
      expose(group, sum({4}));
      if (group.rank() == n - 1) throw Odd("the disk is on fire");
      try {
        expose(group, sum({4}));
      } catch (const Fault& fault) {
        told += std::string(fault.what()) == "rank " + text(n - 1) + " failed first: the disk is on fire" &&
                fault.exit_code == 70;
        throw;
      }
    };
    CHECK_THROWS_AS(run(n, body), Odd);
    CHECK(told == n - 1);
  }
}

TEST_CASE("catching a failure does not hide it") {
  CHECK_THAT(failure(2,
                     [](Transport& group) {
                       try {
                         expose(group, sum({group.rank() + 1}));
                       } catch (...) {
                       }
                     }),
             Contains("87"));
}

TEST_CASE("calls are described in readable words") {
  CHECK_THAT(sum({512, 10}, DType::bf16, "logits").text(), Contains("all_reduce sum bf16 (512, 10) 'logits' at ") &&
                                                               Contains("tests/collectives/test_transports.cpp:"));
  CHECK_THAT(describe(Verb::all_gather_v, Tensor::zeros({3, 2}), Site::here(), ReduceOp::sum, -1, true).text(),
             Contains("all_gather_v f32 (*, 2) at "));
  CHECK(sum({4}).matches(sum({4})));
  CHECK(sum({4}).fingerprint() == sum({4}).fingerprint());
  const char* const longest = "a name of 27 characters, no";
  CHECK_THAT(sum({4}, DType::f32, longest).text(), Contains("'a name of 27 characters, no'"));
  CHECK_THAT(sum({4}, DType::f32, "a name of 28 characters: cut").text(), Contains("'a name of 2..haracters: cut~"));
  const auto of_file = [](const char* file) { return describe(Verb::barrier, Site{file, 7, ""}).text(); };
  CHECK(of_file("a/path/of/fifty/characters/that/is/the/longest.cpp") ==
        "barrier at a/path/of/fifty/characters/that/is/the/longest.cpp:7");
  CHECK(of_file("a/path/of/fifty-one/characters/which/loses/some.cpp") ==
        "barrier at /path/of/fifty-one/characters/which/loses/some.cpp:7");
}

}  // namespace test_transports
