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
    require(dlopen("libcublas.so.0", RTLD_LAZY | RTLD_NOLOAD), "cuBLAS is not loaded");
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

}  // namespace test_processes
