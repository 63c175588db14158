// SPDX-License-Identifier: Apache-2.0
// The gradient of an all_gather is a reduce_scatter. Rank r's loss is 10^r times the sum of all ranks' rows, so the
// digits of a gradient tell which ranks' losses it contains. Prints the tapes of three ranks side by side, with the
// all_gather and with a common mistake: the other ranks' rows as constants, such as a gather without gradients gives.
// Look at the cotangent of the leaf, node 0. It is 111 with the all_gather, as in one process that has all rows. With
// the mistake it is 1, 10 and 100: what the other ranks' losses say of this rank's row is lost, and no error tells.
#include <cmath>
#include <iostream>

#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

void compare(Communicator& comm) {
  const int me = comm.rank().value;
  const Tensor row = Tensor::full({1, 1}, me + 1), rows = comm.all_gather(row);
  const auto title = [&](const char* text) {
    if (me == 0) std::cout << text;
  };
  const auto gradient = [&](const auto& gathered) {
    Tape tape;
    const TapeLog log(tape);
    const Var x = tape.watch(row);
    const Tensor result =
        tape.gradient(sum(gathered(tape, x)) * tape.constant(Tensor::full({}, std::pow(10, me))), {x})[0].value();
    print_tapes(tape, comm);
    return result.item();
  };

  title("With the all_gather:\n");
  const double right = gradient([&](Tape&, const Var& x) { return all_gather(x, comm); });

  title("\nWith the others' rows as constants:\n");
  const double wrong = gradient([&](Tape& tape, const Var& x) {
    return concat({tape.constant(rows.slice(0, me)), x, tape.constant(rows.slice(me + 1, comm.size()))}, 0);
  });

  Tape one_process;
  const Var all = one_process.watch(rows), losses = sum(all) + sum(all) * 10 + sum(all) * 100;
  const double truth = one_process.gradient(losses, {all})[0].value().values()[0];
  require(right == truth, "rank ", me, ": the gradient is not that of one process");
  require(wrong == std::pow(10, me), "rank ", me, ": the mistake makes no difference");
}

}  // namespace

int main() { run_ranks(3, compare); }
