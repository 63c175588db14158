// SPDX-License-Identifier: Apache-2.0
// How much of its gradient NT-Xent loses by a wrong gather: one that returns to a rank what the rank's own loss says of
// its rows, and not what the others' losses say of them. Prints the length of that gradient over the right one's, and
// the cosine between them, for several numbers of ranks, while a network learns to recognize 128 points in noise.
// It loses most before the network has learnt, when all features are alike, and hides afterwards.
#include <array>
#include <cstdio>

#include "weft/collectives/run_ranks.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

constexpr int pairs = 128;

struct Lost {
  double ratio, cosine;
};
Lost lost_on(int ranks, const Tensor& first, const Tensor& second) {
  Lost lost;
  run_ranks(ranks, [&](Communicator& comm) {
    const int me = comm.rank().value, begin = pairs * me / ranks, end = pairs * (me + 1) / ranks;
    Tape tape;
    const Var x = tape.watch(first.slice(begin, end)), y = tape.watch(second.slice(begin, end));
    const Var share = nt_xent(x, y, {.temperature = 0.2}, comm);
    // With the seed 1 on one rank only, that rank's loss is the objective.
    const auto gradient = [&](bool seeded) {
      return concat(tape.gradient(share, Var(Tensor::full({}, seeded)), {x, y}), 0).value();
    };
    const Tensor right = gradient(true);
    Tensor own;
    for (int r = 0; r < ranks; ++r)
      if (const Tensor of_r = gradient(r == me); r == me) own = of_r;
    const auto product = [&](const Var& a, const Var& b) { return comm.all_reduce(sum(a * b).value()).item(); };
    const double squares = product(right, right), of_own = product(own, own), both = product(right, own);
    if (me == 0) lost = {std::sqrt(of_own / squares), both / std::sqrt(of_own * squares)};
  });
  return lost;
}

void train(Communicator& comm) {
  const Tensor points = Tensor::normal({pairs, 32}, {.seed = 1});
  Mlp network("network", {32, 64, 32}, {});
  DataParallel training({{network.parameters(), AdamW{}}}, comm);
  std::printf("step   loss    2 ranks         5 ranks         16 ranks\n");
  for (uint64_t step = 0; step <= 1000; ++step) {
    Tape tape;
    const auto view = [&](uint64_t number) {
      return network(
          tape.constant((Var(points) + Var(Tensor::normal({pairs, 32}, {3, 2 * step + number}, 0, 0.2))).value()));
    };
    const Var first = view(0), second = view(1), loss = nt_xent(first, second, {.temperature = 0.2}, comm);
    if (step == 0 || step == 10 || step == 100 || step == 1000) {
      std::printf("%4d   %.3f", static_cast<int>(step), loss.value().item());
      for (const int ranks : {2, 5, 16}) {
        const auto [ratio, cosine] = lost_on(ranks, first.value(), second.value());
        std::printf("   %.3f, %.3f", ratio, cosine);
      }
      std::printf("\n");
    }
    tape.backward(loss, training.gradients());
    training.step(0.001);
  }
}

}  // namespace

int main() { run_ranks(1, train); }
