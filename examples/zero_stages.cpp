// SPDX-License-Identifier: Apache-2.0
// ZeRO: stage 1 divides the optimizer's state among the ranks, stage 2 also the gradients, stage 3 also the parameters.
// This saves memory and does not change the result. Trains the same small network for five steps at each stage, prints
// its first weight, and checks that all weights are bit-identical to those of stage 0.
#include <iostream>

#include "weft/collectives/share.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/make_trainer.h"

using namespace weft;

namespace {

// All weights after five steps, on every rank.
std::vector<double> trained(int stage, Communicator& comm) {
  Mlp network("network", {16, 256, 2}, {.key = {.seed = 1}});
  const auto training = make_trainer({{network.parameters(), AdamW{}}}, comm, {.stage = stage});
  Layer& layer = training->layer("network", network);  // at stage 3 a call gathers the parameters
  for (uint64_t step = 0; step < 5; ++step) {
    const Random key = Random{.seed = 2}.fork(step).fork(static_cast<uint64_t>(comm.rank().value));
    Tape tape;
    const Var outputs = layer(tape.constant(Tensor::normal({8, 16}, key)));
    tape.backward(share(sum(square(outputs - 1)), 8 * comm.size(), comm), training->gradients());
    training->step(0.01);
  }
  std::vector<double> weights;
  for (const Parameter* parameter : network.parameters())
    for (const double weight : training->whole(*parameter).values()) weights.push_back(weight);
  return weights;
}

void compare(Communicator& comm) {
  const std::vector<double> before = Mlp("network", {16, 256, 2}, {.key = {.seed = 1}}).parameters()[0]->value.values();
  const std::vector<double> replicated = trained(0, comm);
  require(before[0] != replicated[0], "nothing was learnt");
  for (int stage = 0; stage <= 3; ++stage) {
    const std::vector<double> weights = trained(stage, comm);
    if (comm.rank() == GroupRank{0})
      std::cout << "stage " << stage << "  " << weights.size() << " weights, the first " << weights[0] << '\n';
    require(weights == replicated, "stage ", stage, " ends in other weights than stage 0");
  }
}

}  // namespace

int main() { run_ranks(3, compare); }
