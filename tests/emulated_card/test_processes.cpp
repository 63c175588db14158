// SPDX-License-Identifier: Apache-2.0
// What needs a process of its own: settings that CUDA reads at its first call, and faults that end the process.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <latch>
#include <thread>

#include "tests/emulated_card/communicator.h"
#include "tests/support/catch.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/factory.h"
#include "weft/collectives/transports/nccl/nccl.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"

using namespace weft;
using namespace std::chrono_literals;

namespace test_processes {

// What this rank enqueues from here on begins later.
void hold_card_until(std::latch& later) {
  static_cast<cudaStream_t>(backend(Device::cuda).queue())->enqueue([&] { later.wait(); }, emulated::no_card);
}

// Rank 1's card comes to the gather only once rank 0 has launched what it had not launched before.
void step(Communicator& comm, std::latch& launched) {
  const int rank = comm.rank().value;
  if (rank == 1) hold_card_until(launched);
  const Tensor all = comm.all_gather(Tensor::full({3}, rank, DType::f32, Device::cuda));
  if (rank == 0) {
    softplus(Tensor::full({3}, 1, DType::f32, Device::cuda));
    launched.count_down();
  }
  require(all.values() == std::vector<double>{0, 0, 0, 1, 1, 1}, "the gathered values");
}

// Runs body(session, transport) on two ranks with a card each, as a program does.
template <class Body> int job(const Body& body) {
  int argc = 1;
  char name[] = "job", *arguments[] = {name, nullptr}, **argv = arguments;
  const auto all = [&](Session& session) {
    session.run_ranks(2, [&](std::unique_ptr<Transport> hosts) {
      const int rank = hosts->rank();
      body(connect_cards(std::move(hosts), rank, session));
    });
    return 0;
  };
  return run_session(argc, argv, all, {.deadline = 2s, .transport = "nccl", .ranks_are_threads = true});
}

int early_launch() {
  std::latch launched(1);
  return job([&](std::unique_ptr<Transport> cards) {
    Communicator comm(std::move(cards));
    step(comm, launched);
  });
}

int set_up() {
  return job([](std::unique_ptr<Transport> cards) {
    const auto expect = [](int64_t groups) {
      using emulated::asked_so_far, emulated::Verb;
      require(asked_so_far(Verb::all_reduce) == 2 * groups && asked_so_far(Verb::all_gather) == 2 * groups &&
                  asked_so_far(Verb::message) == 4 * groups,
              "NCCL has not begun for ", groups, " groups");
    };
    expect(1);
    for (const char* const library : {"libcublas.so.0", "libcublasLt.so.0", "libcudnn.so.0"})
      require(dlopen(library, RTLD_LAZY | RTLD_NOLOAD), library, " is not loaded");
    const auto other = cards->split(0, 0, Site::here());
    expect(2);
  });
}

struct End {
  int status;
  std::string report;
};

// In a child with this value of CUDA_MODULE_LOADING, or none. It is killed if it does not end within a minute.
template <class Work> End end_of(const char* loading, const Work& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    loading ? setenv("CUDA_MODULE_LOADING", loading, true) : unsetenv("CUDA_MODULE_LOADING");
    alarm(60);
    _exit(work());
  }
  close(ends[1]);
  End end{};
  char piece[256];
  for (ssize_t n = 0; (n = read(ends[0], piece, sizeof piece)) > 0;) end.report.append(piece, static_cast<size_t>(n));
  close(ends[0]);
  waitpid(child, &end.status, 0);
  return end;
}

TEST_CASE("a first launch while a card waits for a peer does not wait, because all kernels are loaded at the start") {
  const End end = end_of(nullptr, early_launch);
  INFO(end.report);
  CHECK(end.status == 0);
}

TEST_CASE("where kernels are loaded late, a launch can stop its process, which ends after the last deadline") {
  const End end = end_of("LAZY", early_launch);
  INFO(end.report);
  CHECK(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == exit_codes::deadline);
  CHECK_THAT(end.report, Catch::StartsWith("weft: rank 0 ends the job with exit code 86: deadline: a call of CUDA or "
                                           "NCCL has not returned for 10000 ms in all_gather f32 (3) on cuda at ") &&
                             Catch::Contains("test_processes.cpp"));
}

TEST_CASE("cards are set up when they are connected, also those of groups that are split off") {
  const End end = end_of(nullptr, set_up);
  INFO(end.report);
  CHECK(end.status == 0);
}

TEST_CASE("a rank that returns memory to the system while its card waits does not hold up other ranks") {
  const End end = end_of(nullptr, [] {
    Tensor::zeros({1000}, DType::f32, Device::cuda);
    std::latch asked(1);
    hold_card_until(asked);
    std::thread other([&] {
      std::this_thread::sleep_for(1s);  // by then the first thread waits for its card
      backend(Device::cuda).memory();
      asked.count_down();
    });
    try {
      Tensor({int64_t{1} << 45}, DType::u8, Device::cuda);
    } catch (const OutOfMemory&) {
      other.join();
      return 0;
    }
    return 1;
  });
  CHECK(end.status == 0);
}

TEST_CASE("a driver that is too old is an error for programs that want a card") {
  const auto with_driver = [](int version) {
    return end_of(nullptr, [version] {
      emulated::driver_version = version;
      Tensor::zeros({1});
      try {
        return available(Device::cuda) ? 1 : 2;
      } catch (const Error& error) {
        std::fputs(error.what(), stderr);
        return 3;
      }
    });
  };
  CHECK(WEXITSTATUS(with_driver(12000).status) == 1);
  CHECK(WEXITSTATUS(with_driver(0).status) == 2);  // no driver
  const End old = with_driver(11040);
  CHECK(WEXITSTATUS(old.status) == 3);
  CHECK(old.report ==
        "cuda: the driver of this machine is for CUDA 11.4, and this program needs one for CUDA 12.0; "
        "install a newer driver");
}

// On two ranks without a session, of which rank 1's card does not come to a gather until `late`.
template <class Body> int with_late_peer(const Body& body) {
  std::latch late(1);
  run_ranks(2, [&](std::unique_ptr<Transport> hosts) {
    const int rank = hosts->rank();
    take_card(rank);
    if (rank == 1) hold_card_until(late);
    body(std::move(hosts), late);
  });
  return 0;
}

// The ranks' cards begin to gather. Returns when rank 0's card has waited for longer than its deadline.
void begin_in_vain(Communicator& comm) {
  comm.all_gather(Tensor::full({3}, comm.rank().value, DType::f32, Device::cuda));
  std::this_thread::sleep_for(3s);
}

constexpr auto of_deadline =
    "deadline: the card has waited 1000 ms for the cards of its peers in all_gather f32 (3) on cuda at ";

TEST_CASE("a fault of a card that nobody has got ends the process with its own exit code") {
  const End end = end_of(nullptr, [] {
    return with_late_peer([](std::unique_ptr<Transport> hosts, std::latch&) {
      Communicator comm(connect_nccl(std::move(hosts), 1s));
      begin_in_vain(comm);
      if (comm.rank().value == 1) std::this_thread::sleep_for(60s);
    });
  });
  INFO(end.report);
  CHECK(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == exit_codes::deadline);
  CHECK_THAT(end.report, Catch::Contains(of_deadline));
}

TEST_CASE("the end of a group throws a fault of its card that nobody has got") {
  const End end = end_of(nullptr, [] {
    return with_late_peer([](std::unique_ptr<Transport> hosts, std::latch&) {
      const int rank = hosts->rank();
      const auto group = connect_nccl(std::move(hosts), 1s);
      const Tensor x = Tensor::full({3}, rank, DType::f32, Device::cuda);
      group->expose(describe(Verb::all_gather, x, Site::here()), {x.data<std::byte>(), x.bytes()}, x.bytes(),
                    [](const Transport::Part&) {});
      std::this_thread::sleep_for(rank == 0 ? 3s : 60s);
      try {
        group->finalize(Site::here());
      } catch (const Fault& fault) {
        std::fputs(fault.what(), stderr);
        _exit(fault.exit_code);
      }
    });
  });
  CHECK(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == exit_codes::deadline);
  CHECK_THAT(end.report, Catch::StartsWith(of_deadline));
}

void read_after_abort(std::unique_ptr<Transport> hosts, std::latch& late) {
  auto others = hosts->split(0, 0, Site::here());
  const auto of_rank = [rank = hosts->rank()] { return Tensor::full({3}, rank, DType::f32, Device::cuda); };
  const auto expect_fault = [&](const Tensor& x) {
    try {
      x.values();
    } catch (const Fault& fault) {
      return require(text(fault.what()).starts_with("deadline: the card has waited"), fault.what());
    }
    fail({"values after an abort"});
  };
  {
    Communicator comm(connect_nccl(std::move(hosts), 1s));
    const Tensor all = comm.all_gather(of_rank());
    if (comm.rank().value == 0) {
      for (int i = 0; i < 2; ++i) expect_fault(all);
      late.count_down();
    } else {
      expect_fault(all);
    }
  }
  expect_fault(of_rank());
  Communicator comm(connect_nccl(std::move(others), 60s));
  require(comm.all_gather(of_rank()).values() == std::vector<double>{0, 0, 0, 1, 1, 1}, "the values of a new group");
}

TEST_CASE("after a card's collectives were ended its values cannot be read until it is connected again") {
  const End end = end_of(nullptr, [] {
    try {
      return with_late_peer(read_after_abort);
    } catch (const std::exception& error) {
      std::fputs(error.what(), stderr);
      return 1;
    }
  });
  INFO(end.report);
  CHECK(end.status == 0);
}

}  // namespace test_processes
