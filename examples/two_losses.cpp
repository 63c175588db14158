// SPDX-License-Identifier: Apache-2.0
// Two losses before one step, each with its own tape and backward. Gradients are a value to which each backward adds,
// and the sum over ranks is taken once. Prints the parameter after that step, and after a step with both losses added
// on one tape, and checks that they are equal up to rounding.
#include <iostream>

#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

struct Model {
  Parameter w{"w", Tensor::from({3}, {0.5, -1, 2})};
  const Tensor x;
  Communicator& comm;
  DataParallel training{{{{&w}, Sgd{}}}, comm};

  explicit Model(Communicator& comm) : x(Tensor::full({3}, comm.rank().value + 1)), comm(comm) {}
  // Each loss is this rank's share of a mean over all samples; every rank has one sample.
  Var errors(Tape& tape) { return share(sum(square(tape.watch(w) - tape.constant(x))), comm.size(), comm); }
  Var products(Tape& tape) { return share(sum(abs(tape.watch(w) * tape.constant(x))), comm.size(), comm); }
};

void compare(Communicator& comm) {
  Model apart(comm);
  for (const auto loss : {&Model::errors, &Model::products}) {
    Tape tape;
    tape.backward((apart.*loss)(tape), apart.training.gradients());
  }
  apart.training.step(0.1);

  Model added(comm);
  Tape tape;
  tape.backward(added.errors(tape) + added.products(tape), added.training.gradients());
  added.training.step(0.1);

  if (comm.rank() == GroupRank{0})
    std::cout << "two backward passes    " << text(apart.w.value) << "\none, of the sum        " << text(added.w.value)
              << '\n';
  require(norm(Var(apart.w.value) - Var(added.w.value)).value().item() < 1e-6, "the two steps differ");
  require(apart.w.value.values() != Model(comm).w.value.values(), "nothing was learnt");
}

}  // namespace

int main() { run_ranks(3, compare); }
