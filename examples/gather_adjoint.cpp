// SPDX-License-Identifier: Apache-2.0
// The gradient of an all_gather is a reduce_scatter. The loss compares this rank's rows with the rows of all ranks, so
// the gradient of a row has terms from other ranks' losses, and the reduce_scatter returns them. Prints rank 0's
// gradient three times: with the reduce_scatter; without it, which is a common mistake (the other ranks' rows are
// constants); and in one process that has all rows. The first and the last agree.
#include <iostream>

#include "weft/collectives/collectives.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

using namespace weft;

namespace {

Var loss(const Var& rows, const Var& others) { return sum(exp(matmul(rows, others, Transpose::no, Transpose::yes))); }

double distance(const Tensor& a, const Tensor& b) { return norm(Var(a) - Var(b)).value().item(); }

void compare(Communicator& comm) {
  const int me = comm.rank().value;
  const Tensor mine = Tensor::uniform({1, 3}, {.seed = 1, .stream = static_cast<uint64_t>(me)});
  const Tensor everyones = comm.all_gather(mine);

  Tape tape;
  const Var x = tape.watch(mine);
  const Tensor right = tape.gradient(loss(x, all_gather(x, comm)), {x})[0].value();

  Tape wrong_tape;
  const Var y = wrong_tape.watch(mine);
  const Var others_constant = concat({everyones.slice(0, me), y, everyones.slice(me + 1, comm.size())}, 0);
  const Tensor wrong = wrong_tape.gradient(loss(y, others_constant), {y})[0].value();

  Tape one_process;
  const Var all = one_process.watch(everyones);
  const Tensor whole = one_process.gradient(loss(all, all), {all})[0].value().slice(me, me + 1);

  if (me == 0)
    std::cout << "with the adjoint     " << text(right) << "\nwithout it           " << text(wrong)
              << "\nfrom one process     " << text(whole) << '\n';
  require(distance(right, whole) < 1e-5, "rank ", me, ": the gradient is not that of one process");
  require(distance(wrong, whole) > 1, "rank ", me, ": the mistake makes no difference");
}

}  // namespace

int main() { run_ranks(3, compare); }
