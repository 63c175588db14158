// SPDX-License-Identifier: Apache-2.0
// overlap_child LAYERS WIDTH SAMPLES    one rank of bench/against_overlap: training steps of a network of equal
// layers, whose sums of gradients are taken after backward or during it, beside the same steps without any sums. Rank 0
// prints JSON lines with the seconds of each.
#include "bench/measuring/ranks.h"
#include "bench/networks.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

namespace weft::bench {
namespace {

struct Sizes {
  int64_t layers, width, samples;
};

struct DeepMlp : Network {
  explicit DeepMlp(const Sizes& sizes) : x(Tensor::uniform({sizes.samples, sizes.width}, {2}, -1, 1)) {
    for (int64_t i = 0; i < sizes.layers; ++i) parameter({sizes.width, sizes.width}, 0.05);
  }
  Var loss(Tape& tape) override {
    Var h = tape.constant(x);
    for (const Parameter& w : parameters()) h = relu(matmul(h, tape.watch(w)));
    return mean(square(h));
  }
  const Tensor x;
};

class Training {
 public:
  Training(const Sizes& sizes, Communicator& comm, DataParallel::Options options)
      : net_(sizes), parallel_({{pointers(net_), Sgd{}}}, comm, options) {}
  void step() {
    {
      Tape tape;
      parallel_.expect_last_pass();
      tape.backward(net_.loss(tape), parallel_.gradients());
    }
    parallel_.step(1e-6);
  }

 private:
  static std::vector<Parameter*> pointers(DeepMlp& net) {
    std::vector<Parameter*> all;
    for (Parameter& p : net.parameters()) all.push_back(&p);
    return all;
  }
  DeepMlp net_;
  DataParallel parallel_;
};

void measure(Ranks& ranks, const Sizes& sizes) {
  Communicator self(connect_self());
  const int64_t bucket = sizes.width * sizes.width;
  Training alone(sizes, self, {}), after(sizes, ranks.group(), {.bucket = bucket}),
      during(sizes, ranks.group(), {.when = GradientSync::When::in_last_pass, .bucket = bucket});
  for (Training* each : {&alone, &after, &during, &during}) each->step();  // its first pass learns what a bucket gets
  const Rounds rounds({ranks.burst([&] { alone.step(); }, 1), ranks.burst([&] { after.step(); }, 1),
                       ranks.burst([&] { during.step(); }, 1)},
                      7, 1);
  const double bytes = static_cast<double>(sizes.layers * bucket) * sizeof(float);
  ranks.print("step without sums", "", rounds.median(0), 0, bytes);
  ranks.print("sums after backward, and during it", "", rounds.median(2), rounds.median(1), bytes);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::run_session(argc, argv, [&](weft::Session& session) {
    weft::bench::Ranks ranks(session);
    weft::require(argc == 4, "overlap_child LAYERS WIDTH SAMPLES");
    weft::bench::measure(ranks, {std::stoll(argv[1]), std::stoll(argv[2]), std::stoll(argv[3])});
    return 0;
  });
}
