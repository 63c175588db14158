// SPDX-License-Identifier: Apache-2.0
// The objective is the sum over ranks of what each rank returns. Three ranks have 1, 2 and 3 of the samples 1 to 6, and
// the loss is the mean of w * sample. Prints the tapes of a rank's share, its sum over 6, and the gradient of w summed
// over ranks; then that of the usual mistake, each rank's own mean divided by the number of ranks, which weighs a
// sample by how few its rank has. Checks both against one process.
#include <iostream>

#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

// The gradient of w after the sum over ranks.
template <class Loss> double gradient(const Loss& loss, bool shown, Communicator& comm) {
  Parameter w("w", Tensor::full({}, 2));
  DataParallel training({{{&w}, Sgd{}}}, comm);
  Tape tape;
  const TapeLog log(tape);
  tape.backward(loss(tape, tape.watch(w)), training.gradients());
  if (shown) print_tapes(tape, comm);
  training.reduce();
  return training.reduced(w).item();
}

void compare(Communicator& comm) {
  const Tensor all = Tensor::from({6}, {1, 2, 3, 4, 5, 6});
  const int64_t me = comm.rank().value, begins[] = {0, 1, 3, 6};
  const Tensor mine = all.slice(begins[me], begins[me + 1]);
  const double right = gradient(
      [&](Tape& tape, const Var& w) { return share(sum(tape.constant(mine)) * w, all.size(), comm); }, true, comm);
  const double wrong =
      gradient([&](Tape& tape, const Var& w) { return mean(tape.constant(mine)) * w / comm.size(); }, false, comm);
  if (me == 0) std::cout << "\nshares: " << right << "\nmeans of means: " << wrong << '\n';
  require(right == mean(Var(all)).value().item(), "the gradient is not that of one process");
  require(wrong < 2.9, "the mistake makes no difference");
}

}  // namespace

int main() { run_ranks(3, compare); }
