// SPDX-License-Identifier: Apache-2.0
// Data parallelism is an adjoint: every rank gets a copy of w, and the adjoint of copying is the sum over ranks. Rank
// r's loss is 10^r * w, so the digits of a gradient tell whose losses it contains. Prints the tapes with the copies on
// the tape, where the sum is a node, and what a trainer has, which sums gradients after backward. Both are 111.
#include <cmath>
#include <iostream>

#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

void compare(Communicator& comm) {
  const int me = comm.rank().value;
  Parameter w("w", Tensor::full({}, 5));
  const Tensor factor = Tensor::full({}, std::pow(10, me));

  Tape tape;
  const TapeLog log(tape);
  const Var on_root = tape.watch(w), copy = broadcast(on_root, {0}, comm);
  Gradients gradients;
  tape.backward(copy * tape.constant(factor), gradients);
  print_tapes(tape, comm);

  DataParallel training({{{&w}, Sgd{}}}, comm);
  Tape trained;
  trained.backward(trained.watch(w) * trained.constant(factor), training.gradients());
  const double local = training.gradients()[w].item();
  training.reduce();
  const double sum = training.reduced(w).item();
  const std::vector<double> locals = comm.all_gather(Tensor::full({1}, local)).values();
  if (me == 0)
    std::cout << "\na trainer: " << text(Tensor::from({3}, locals)) << " before the sum over ranks, " << sum
              << " after it\n";
  require(local == std::pow(10, me) && sum == 111, "rank ", me, ": the gradient is ", local, ", its sum ", sum);
}

}  // namespace

int main() { run_ranks(3, compare); }
