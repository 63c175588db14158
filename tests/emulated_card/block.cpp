// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/block.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "tests/emulated_card/access.h"
#include "tests/emulated_card/fault.h"
#include "tests/emulated_card/modules.h"
#include "tests/emulated_card/null_card.h"
#include "tests/emulated_card/stream.h"

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace weft::emulated {
namespace {

constexpr size_t stack_bytes = size_t{256} << 10;
constexpr auto lanes = static_cast<size_t>(warp_lanes);

using Thread = std::function<void()>;

// A stack on which threads of blocks run one after the other. The first switch to it uses ucontext; later ones use
// _longjmp, which saves the system call for the signal mask.
struct Fiber {
  Fiber() {
    constexpr int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK;
    stack = mmap(nullptr, stack_bytes, access, kind, -1, 0);
  }
  ~Fiber() { munmap(stack, stack_bytes); }
  Fiber(const Fiber&) = delete;

  void* stack;
  jmp_buf place;
};

// The fibers of one host thread, and what they run.
class Block {
 public:
  enum class State { ready, at_warp, at_block, ended };

  bool run(size_t threads, const Thread& thread, bool backwards);  // false on a deadlock

  // For the running thread:
  void wait(State where) {
    states_[current_] = where;
    leave();
  }
  uint64_t exchange(uint64_t mine, int lane) {
    std::vector<uint64_t>& values = values_[rounds_[current_]++ % 2];  // a lane can be one round ahead, but not two
    values[current_] = mine;
    wait(State::at_warp);
    return values[current_ / lanes * lanes + static_cast<size_t>(lane)];
  }

 private:
  bool run_warp(size_t first, size_t last, bool backwards);
  bool all(size_t first, size_t last, State state) const;
  void resume(size_t thread);
  void enter();
  void leave() {
    if (_setjmp(fibers_[current_]->place) == 0) _longjmp(host_, 1);
  }
  static void body();

  jmp_buf host_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<State> states_;
  std::vector<uint64_t> values_[2];
  std::vector<size_t> rounds_;
  size_t current_ = 0;
  const Thread* thread_ = nullptr;
};

thread_local Block block_of_thread;

void Block::body() {
  for (Block& block = block_of_thread;; block.leave()) {
    (*block.thread_)();
    block.states_[block.current_] = State::ended;
  }
}

void Block::enter() {
  ucontext_t start;
  getcontext(&start);
  start.uc_stack = {fibers_[current_]->stack, 0, stack_bytes};
  makecontext(&start, &body, 0);
  setcontext(&start);
}

void Block::resume(size_t thread) {
  current_ = thread;
  threadIdx.x = static_cast<unsigned>(thread);
  if (_setjmp(host_) != 0) return;
  if (fibers_[thread]) _longjmp(fibers_[thread]->place, 1);
  fibers_[thread] = std::make_unique<Fiber>();
  enter();
}

bool Block::all(size_t first, size_t last, State state) const {
  return std::all_of(states_.begin() + static_cast<std::ptrdiff_t>(first),
                     states_.begin() + static_cast<std::ptrdiff_t>(last), [=](State s) { return s == state; });
}

// Runs until its threads have ended or wait for the block.
bool Block::run_warp(size_t first, size_t last, bool backwards) {
  for (;; backwards = !backwards) {
    for (size_t i = first; i < last; ++i) {
      const size_t thread = backwards ? first + last - 1 - i : i;
      if (states_[thread] == State::ready) resume(thread);
    }
    if (!all(first, last, State::at_warp)) return all(first, last, states_[first]);
    std::fill(states_.begin() + static_cast<std::ptrdiff_t>(first), states_.begin() + static_cast<std::ptrdiff_t>(last),
              State::ready);
  }
}

bool Block::run(size_t threads, const Thread& thread, bool backwards) {
  thread_ = &thread;
  fibers_.resize(std::max(fibers_.size(), threads));
  states_.assign(threads, State::ready);
  rounds_.assign(threads, 0);
  for (std::vector<uint64_t>& values : values_) values.resize(threads);
  const size_t warps = threads / lanes;
  for (bool well = true; well; backwards = !backwards) {
    for (size_t w = 0; w < warps; ++w) {
      const size_t first = (backwards ? warps - 1 - w : w) * lanes;
      well = well && run_warp(first, first + lanes, backwards);
    }
    if (all(0, threads, State::ended)) return true;
    well = well && all(0, threads, State::at_block);
    states_.assign(threads, State::ready);
  }
  fibers_.clear();  // they were stopped midway
  return false;
}

// The order of a launch's blocks and threads: forwards or backwards. WEFT_CARD_SEED in the environment draws another
// one, in which blocks begin with any of them.
struct Order {
  bool backwards;
  uint64_t first = 0;

  explicit Order(uint64_t launch) : backwards(launch % 2 == 1) {
    static const char* const seed = std::getenv("WEFT_CARD_SEED");
    if (!seed) return;
    std::mt19937_64 dice(std::strtoull(seed, nullptr, 10) << 32 | launch);
    backwards = dice() % 2 == 1;
    first = dice();
  }
  unsigned block(unsigned number, unsigned blocks) const {
    const auto place = static_cast<unsigned>((first % blocks + number) % blocks);
    return backwards ? blocks - 1 - place : place;
  }
};

// How many bytes of shared memory a launch may ask for: more than 48 KiB only of a kernel that has asked to.
constexpr size_t usual_shared = size_t{48} << 10, largest_shared = size_t{227} << 10;
struct SharedLimits {
  std::mutex mutex;
  std::map<const void*, size_t> of_kernels;
};
SharedLimits& shared_limits() {
  static SharedLimits& instance = *new SharedLimits;
  return instance;
}
size_t max_shared(const void* kernel) {
  const std::lock_guard lock(shared_limits().mutex);
  const auto found = shared_limits().of_kernels.find(kernel);
  return found == shared_limits().of_kernels.end() ? usual_shared : found->second;
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& shape, const Kernel& kernel, Thread thread) {
  const auto [grid, block, shared_bytes, stream] = shape;
  constexpr unsigned max_threads = 1024, max_blocks = (1u << 31) - 1;
  if (const cudaError_t refused = refused_on(stream)) return refused;
  if (grid.x == 0 || grid.x > max_blocks)
    return refuse(cudaErrorInvalidConfiguration, std::to_string(grid.x) + " blocks");
  if (block.x == 0 || block.x > max_threads || block.x % lanes != 0)
    return refuse(cudaErrorInvalidConfiguration, std::to_string(block.x) + " threads in a block");
  if (shared_bytes > max_shared(kernel.address))
    return refuse(cudaErrorInvalidValue, std::to_string(shared_bytes) + " bytes of shared memory");
  load_kernel(current_card, kernel.address);
  if (!stream->capture()) count_launch(kernel.parameters);
  const bool backwards = stream->asked() % 2 == 1;
  stream->enqueue(
      [grid = grid, block = block, name = "the kernel of " + kernel.parameters, backwards, thread = std::move(thread)] {
        name_work(name.c_str(), true);
        gridDim = grid;
        blockDim = block;
        for (unsigned b = 0; b < grid.x; ++b) {
          blockIdx.x = backwards ? grid.x - 1 - b : b;
          if (!block_of_thread.run(block.x, thread, backwards))
            return report_fault(name + ": some threads of block " + std::to_string(blockIdx.x) +
                                " wait at a shuffle or at __syncthreads, and others do not come");
        }
      });
  return cudaSuccess;
}

void meet_block() { block_of_thread.wait(Block::State::at_block); }

uint64_t exchange_lanes(unsigned mask, uint64_t mine, int lane) {
  if (mask != ~0u) report_fault("a shuffle names some lanes only");
  return block_of_thread.exchange(mine, lane);
}

}  // namespace weft::emulated

using namespace weft::emulated;

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto bytes = static_cast<size_t>(value);
  if (value < 0 || bytes > largest_shared)
    return refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory");
  const std::lock_guard lock(shared_limits().mutex);
  shared_limits().of_kernels[kernel] = std::max(bytes, usual_shared);
  return cudaSuccess;
}
