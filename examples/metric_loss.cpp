// SPDX-License-Identifier: Apache-2.0
// A metric as the loss: the Pearson correlation over the samples of all ranks. It is not a mean over samples, so means
// of per-rank correlations would be wrong. Ranks have 1, 3 and 5 samples; a single sample, as rank 0 has, has no
// correlation. Prints the correlation during training, and checks its gradient against one process with all samples.
#include <iostream>

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/metrics/regression_metrics.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

// The correlation of x w with the targets. The whole loss is the share of rank 0; other shares are zero.
struct Samples {
  Tensor x, targets;

  Var share(Tape& tape, Parameter& w, Communicator& comm) const {
    const Var predictions = reshape(matmul(tape.constant(x), tape.watch(w)), {x.shape()[0]});
    return keep_on(-pearson_correlation(predictions, tape.constant(targets), comm), {0}, comm);
  }
};

void train(Communicator& comm) {
  const int64_t rank = comm.rank().value, first = rank * rank, last = (rank + 1) * (rank + 1);
  const Tensor x = Tensor::normal({9, 2}, {.seed = 3}), targets = sum(sin(x), 1).value();
  const Samples all{x, targets}, mine{x.slice(first, last), targets.slice(first, last)};
  Parameter w("w", Tensor::from({2, 1}, {1, -0.5}));
  DataParallel training({{{&w}, Sgd{}}}, comm);
  Communicator alone(connect_self());

  for (int step = 0; step <= 20; ++step) {
    Tape tape, tape_of_all;
    const Var loss = mine.share(tape, w, comm), whole = all.share(tape_of_all, w, alone);
    tape.backward(loss, training.gradients());
    const Tensor wanted = tape_of_all.gradient(whole, {tape_of_all.watch(w)})[0].value();
    training.reduce();
    require(norm(Var(training.reduced(w)) - Var(wanted)).value().item() < 1e-5, "the gradient is not one process's");
    if (rank == 0 && step % 5 == 0) std::cout << "step " << step << "  correlation " << -loss.value().item() << '\n';
    require(step < 20 || whole.value().item() < -0.9, "the correlation ends at ", -whole.value().item());
    training.step(0.3);
  }
}

}  // namespace

int main() { run_ranks(3, train); }
