// SPDX-License-Identifier: Apache-2.0
// The checks of all transports under mpiexec. With two arguments, a fault and its rank, it commits the fault for
// faults.py.
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "tests/collectives/transport_checks.h"
#include "tests/support/beyond_memory.h"
#include "weft/collectives/transports/factory.h"

using namespace weft;

namespace {

void expose(Transport& group, const Call& call, size_t size = 64) {
  const std::vector<std::byte> mine(size);
  group.expose(call, mine, size, [](const Transport::Part&) {});
}
Call sum(const Shape& shape, DType dtype = DType::f32, const char* name = "", ReduceOp op = ReduceOp::sum,
         Site site = Site::here()) {
  site.name = name;
  return describe(Verb::all_reduce, Tensor::zeros(shape, dtype), site, op);
}
Call broadcast(int root) { return describe(Verb::broadcast, Tensor::zeros({4}), Site::here(), ReduceOp::sum, root); }

void be_busy(Transport& group, int seconds) {
  if (seconds) group.busy_with("writes runs/x");
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  group.busy_with("");
  expose(group, sum({4}));
}
void crash(Transport& group, int signal) {
  volatile int* nowhere = nullptr;
  if (signal == SIGSEGV) *nowhere = 1;
  if (signal == SIGABRT) std::abort();
  if (signal) std::raise(signal);
  expose(group, sum({4}));
}

int recurse(int depth) {
  volatile char frame[4096];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : recurse(depth + 1) + frame[0];
}

using Fault = std::function<void(Transport& group, bool odd)>;
const std::map<std::string, Fault> faults = {
    {"none", [](Transport& group, bool) { expose(group, sum({4})); }},
    {"kind",
     [](Transport& group, bool odd) {
       expose(group, odd ? describe(Verb::all_gather, Tensor::zeros({4}), Site::here()) : sum({4}));
     }},
    {"count", [](Transport& group, bool odd) { expose(group, sum({odd ? 8 : 4})); }},
    {"dtype", [](Transport& group, bool odd) { expose(group, sum({4}, odd ? DType::i64 : DType::f32)); }},
    {"operation", [](Transport& group,
                     bool odd) { expose(group, sum({4}, DType::f32, "", odd ? ReduceOp::product : ReduceOp::sum)); }},
    {"root", [](Transport& group, bool odd) { expose(group, broadcast(odd)); }},
    {"order",
     [](Transport& group, bool odd) {
       expose(group, sum({4}, DType::f32, odd ? "bias" : "weights"));
       expose(group, sum({4}, DType::f32, odd ? "weights" : "bias"));
     }},
    {"order_of_long_names",
     [](Transport& group, bool odd) {
       const char* const names[] = {"encoder.blocks.11.attention.query.weight",
                                    "encoder.blocks.11.attention.key.weight"};
       for (const int i : {0, 1}) expose(group, sum({4}, DType::f32, names[odd ? 1 - i : i]));
     }},
    {"started",  // the odd rank waits in its next call, not in this one
     [](Transport& group, bool odd) {
       std::unique_ptr<Transport::Request> started;
       if (odd) started = group.start(sum({8}), Tensor::zeros({8}), 32);
       expose(group, sum({odd ? 8 : 4}));
     }},
    {"split", [](Transport& group, bool) { group.split(0, 0, Site::here()); }},
    {"group",
     [](Transport& group, bool odd) {
       const auto twin = group.split(0, 0, Site::here());
       expose(odd ? *twin : group, sum({4}));
     }},
    {"skip",
     [](Transport& group, bool odd) {
       if (!odd) expose(group, sum({4}));
       expose(group, sum({5}));
     }},
    {"stop",
     [](Transport& group, bool odd) {
       if (odd) std::raise(SIGSTOP);
       expose(group, sum({4}));
     }},
    {"sleep",
     [](Transport& group, bool odd) {
       if (odd) std::this_thread::sleep_for(std::chrono::seconds(30));
       expose(group, sum({4}));
     }},
    {"spin",
     [](Transport& group, bool odd) {
       for (std::atomic<bool> never = false; odd && !never;) continue;
       expose(group, sum({4}));
     }},
    {"busy", [](Transport& group, bool odd) { be_busy(group, odd ? 3 : 0); }},
    {"busy_for_ever", [](Transport& group, bool odd) { be_busy(group, odd ? 30 : 0); }},
    {"calm",  // for disturbances from outside
     [](Transport& group, bool odd) {
       for (int i = 0; i < 20; ++i) {
         if (odd) std::this_thread::sleep_for(std::chrono::milliseconds(50));
         expose(group, sum({4}));
       }
     }},
    {"memory",
     [](Transport& group, bool odd) {
       if (odd) Tensor::zeros({beyond_memory});
       expose(group, sum({4}));
     }},
    {"crash_11", [](Transport& group, bool odd) { crash(group, odd ? SIGSEGV : 0); }},
    {"crash_6", [](Transport& group, bool odd) { crash(group, odd ? SIGABRT : 0); }},
    {"crash_8", [](Transport& group, bool odd) { crash(group, odd ? SIGFPE : 0); }},
    {"overflow",
     [](Transport& group, bool odd) {
       if (odd) std::printf("%d\n", recurse(1));
       expose(group, sum({4}));
     }},
    {"throw",
     [](Transport& group, bool odd) {
       if (odd) throw std::runtime_error("the disk is on fire");
       expose(group, sum({4}));
     }},
    {"throw_everywhere",
     [](Transport& group, bool) {
       if (group.size() > 0) throw std::runtime_error("the disk is on fire");
     }},
    {"throw_in_noexcept",
     [](Transport& group, bool odd) {
       const std::function<void()> fails = [] { throw std::runtime_error("the disk is on fire"); };
       const auto careless = [&]() noexcept { fails(); };
       if (odd) careless();
       expose(group, sum({4}));
     }},
    {"throw_in_thread",
     [](Transport& group, bool odd) {
       if (odd) std::thread([] { throw std::runtime_error("the disk is on fire"); }).join();
       expose(group, sum({4}));
     }},
    {"return",
     [](Transport& group, bool odd) {
       if (!odd) expose(group, sum({4}));
     }},
    {"return_from_group",
     [](Transport& group, bool odd) {
       const auto twin = group.split(0, 0, Site::here());
       if (!odd) expose(*twin, sum({4}));
     }},
    {"exit_0",
     [](Transport& group, bool odd) {
       if (odd) std::exit(0);
       expose(group, sum({4}));
     }},
    {"exit_1",
     [](Transport& group, bool odd) {
       if (odd) std::exit(1);
       expose(group, sum({4}));
     }},
};

void groups_are_given_back(const Session& session, Transport& world) {
  const auto held = [&] {
    checks::barrier(world);
    struct stat status {};
    stat(session.job()->memory().path().c_str(), &status);
    return std::array<size_t, 3>{checks::resident_bytes(), static_cast<size_t>(status.st_blocks) * 512,
                                 checks::open_files()};
  };
  checks::groups_come_and_go(world, 100);
  const auto before = held();
  checks::groups_come_and_go(world, world.size() > 2 ? 100 : 300);
  // More than MPI has communicators. Splitting is slow by messages with more ranks than cores.
  if (world.size() <= 2)
    for (int i = 0; i < 2100; ++i) world.split(0, 0, Site::here());
  const auto after = held();
  const size_t little = checks::kept_by_allocator();
  require(after[0] < before[0] + little && after[1] < before[1] + little && after[2] == before[2],
          "groups that are gone have left something: ", after[0] >> 10, " KiB of memory after ", before[0] >> 10,
          ", in the job's file ", after[1] >> 10, " after ", before[1] >> 10, ", ", after[2], " open files after ",
          before[2]);
}

// A session that is left by an exception, as in a main that catches outside of it.
int unwind(int argc, char** argv) try {
  Session session(argc, argv);
  const auto group = connect(session);
  if (session.rank() == std::atoi(argv[2])) throw std::runtime_error("the disk is on fire");
  expose(*group, sum({4}));
  return 0;
} catch (const std::exception&) {
  return 1;
}

// Commits the named fault on one rank.
void commit(const char* fault, int odd, Transport& group) {
  for (int i = 0; i < 100; ++i) expose(group, sum({3}, DType::f32, "before"));
  faults.at(fault)(group, group.rank() == odd);
}

}  // namespace

// Replaces the library's function, as if MPI had no thread support, if that is asked for.
extern "C" int PMPI_Init_thread(int*, char***, int, int*);
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int outcome = PMPI_Init_thread(argc, argv, required, provided);
  if (std::getenv("TEST_WITHOUT_THREADS")) *provided = 0;  // MPI_THREAD_SINGLE
  return outcome;
}

int main(int argc, char** argv) {
  if (argc > 2 && argv[1] == std::string("unwind")) return unwind(argc, argv);
  return run_session(argc, argv, [&](Session& session) {
    if (argc > 3) {  // this number of threads as ranks
      session.run_ranks(std::atoi(argv[3]),
                        [&](std::unique_ptr<Transport> group) { commit(argv[1], std::atoi(argv[2]), *group); });
      return 0;
    }
    const auto group = connect(session);
    if (argc > 2) {
      commit(argv[1], std::atoi(argv[2]), *group);
      return 0;
    }
    checks::everything_works(*group);
    groups_are_given_back(session, *group);
    if (session.rank() == 0) std::printf("%s: all is well\n", description(*group).c_str());
    return 0;
  });
}
