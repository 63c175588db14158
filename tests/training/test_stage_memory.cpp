// SPDX-License-Identifier: Apache-2.0
// The pool memory in use during backward at each stage of data parallelism.
#include <atomic>
#include <deque>

#include "tests/support/on_ranks.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

constexpr int ranks = 4, layers = 64;
constexpr int64_t each = 16 * 1024;                                 // elements of a layer, and of a bucket
constexpr double bucket = 1.125 * 4 * each, all = bucket * layers;  // the pool rounds up by an eighth at most

// The largest total of all ranks at a reduction, beyond the memory before the training. Ranks in step find earlier
// reductions complete.
double max_held(DataParallel::Options options) {
  const int64_t before = pool::statistics().live_bytes;
  std::atomic<int64_t> most = 0;
  run_ranks(ranks, [&](Communicator& comm) {
    std::deque<Parameter> parameters;
    std::vector<Parameter*> pointers;
    for (int i = 0; i < layers; ++i)
      pointers.push_back(&parameters.emplace_back(std::to_string(i), Tensor::uniform({each}, {1, uint64_t(i)})));
    DataParallel training({{pointers, AdamW{}}}, comm, options);
    const auto pace = comm.duplicate();
    training.sync().before_reduce([&](Range, const Tensor&) {
      pace->barrier();
      int64_t held = pool::statistics().live_bytes - before;
      for (int64_t seen = most; held > seen && !most.compare_exchange_weak(seen, held);) {
      }
      pace->barrier();
    });
    for (int step = 0; step < 3; ++step) {
      Tape tape;
      Var loss = tape.constant(Tensor::zeros({}));
      for (const Parameter& p : parameters) loss = loss + sum(square(tape.watch(p)));
      training.expect_last_pass();
      tape.backward(loss, training.gradients());
      training.step(0.1);
    }
  });
  return static_cast<double>(most.load());
}

}  // namespace

// With ranks as threads, the parameters of stages 1 and 2 are one block outside of the pool.
TEST_CASE("stage 1 shards optimizer state and reduced gradients, and stage 2 the local gradients as well") {
  const auto when = GradientSync::When::in_last_pass;
  const double state_and_sums = 3 * all, in_flight = 6 * ranks * bucket;
  const double first = max_held({.stage = 1, .when = when, .bucket = each});
  const double second = max_held({.stage = 2, .when = when, .bucket = each});
  CAPTURE(first / all, second / all);
  CHECK(first > state_and_sums + ranks * all);
  CHECK(second < 1.05 * state_and_sums + in_flight);
}
