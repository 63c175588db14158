// SPDX-License-Identifier: Apache-2.0
// Whole training steps on several ranks: the slowdown of a rank by further ranks, and the number of system allocations.
#include "bench/measuring/allocations.h"
#include "bench/measuring/ranks.h"
#include "bench/networks.h"
#include "weft/collectives/transports/self.h"
#include "weft/optim/parallel/data_parallel.h"
#include "weft/optim/parallel/sharded.h"

namespace weft::bench {
namespace {

std::vector<Parameter*> parameters_of(Network& net) {
  std::vector<Parameter*> all;
  for (Parameter& p : net.parameters()) all.push_back(&p);
  return all;
}

template <class Net> class Training {
 public:
  Training(int64_t batch, Communicator& comm, DataParallel::Options options)
      : net_(batch), parallel_({{parameters_of(net_), AdamW{}}}, comm, options) {}
  void step() {
    {
      Tape tape;
      parallel_.expect_last_pass();
      tape.backward(net_.loss(tape), parallel_.gradients());
    }
    parallel_.step(1e-3);
  }

 private:
  Net net_;
  DataParallel parallel_;
};

// Stage 3, with all parameters in one unit.
template <class Net> class ShardedTraining {
 public:
  ShardedTraining(int64_t batch, Communicator& comm)
      : net_(batch), sharded_({{parameters_of(net_), AdamW{}}}, comm), unit_(sharded_.unit(parameters_of(net_))) {}
  void step() {
    {
      Tape tape;
      const Var input = tape.constant(net_.views);
      tape.backward(sharded_.run(unit_, input, [this](const Var& x) { return net_.loss(*x.tape()); }),
                    sharded_.gradients());
    }
    sharded_.step(1e-3);
  }

 private:
  Net net_;
  Sharded sharded_;
  const Sharded::Unit unit_;
};

using When = GradientSync::When;
struct Kind {
  const char* name;
  DataParallel::Options options;
};
const Kind kinds[] = {
    {"stage 0", {.stage = 0}},
    {"stage 0, in buckets during backward", {.stage = 0, .when = When::in_last_pass, .bucket = 1 << 16}},
    {"stage 1", {.stage = 1}},
    {"stage 2", {.stage = 2, .when = When::in_last_pass, .bucket = 1 << 16}}};

}  // namespace

// Compares rank 0 alone, while the others sleep, with all ranks, each with the same number of images. Each rank
// contrasts only its own images, so that the work of a rank stays the same.
void weak_scaling(Ranks& ranks) {
  constexpr int64_t images = 256;
  constexpr int steps = 20;
  Communicator self(connect_self());
  Training<ContrastiveMlp> alone(images, self, {});
  const auto by_itself = [&] {
    if (ranks.group().rank().value == 0) alone.step();
  };
  for (const Kind& kind : kinds) {
    Training<ContrastiveMlp> together(images, ranks.group(), kind.options);
    const auto with_others = [&] { together.step(); };
    for (int i = 0; i < 3; ++i) by_itself(), with_others();
    const Rounds rounds({ranks.burst(by_itself, steps), ranks.burst(with_others, steps)}, 5, 2);
    ranks.print(kind.options.stage == 1 ? "scaling" : "shown", kind.name, rounds.median(1), rounds.median(0),
                middle(rounds.ratio(0, 1)).median);
  }
}

template <class Training> static void allocations_of(Ranks& ranks, const char* name, Training training) {
  constexpr int steps = 10;
  for (int i = 0; i < 20; ++i) training.step();
  const int64_t pool_before = pool::statistics().system_calls;
  CountAllocations calls;
  for (int i = 0; i < steps; ++i) training.step();
  const auto mine = static_cast<double>(calls.stop() + pool::statistics().system_calls - pool_before) / steps;
  if (mine > 0)
    std::fprintf(stderr, "%s: the first allocation of a step is by%s\n", name, CountAllocations::first().c_str());
  const double all = ranks.group().all_reduce(Tensor::full({}, mine, DType::f64)).item();
  ranks.print("allocations", name, 0, 0, all);
}

void allocations(Ranks& ranks) {
  constexpr int64_t images = 16;
  for (const Kind& kind : kinds)
    allocations_of(ranks, kind.name, Training<ContrastiveMlp>(images, ranks.group(), kind.options));
  allocations_of(ranks, "stage 3", ShardedTraining<ContrastiveMlp>(images, ranks.group()));
}

}  // namespace weft::bench
