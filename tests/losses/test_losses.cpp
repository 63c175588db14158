// SPDX-License-Identifier: Apache-2.0
// Checks of all loss cases: every loss and every quantizer in each of its variants. every_loss.py checks that every
// loss has a case.
#include "tests/kernels/cuda_checks.h"
#include "tests/losses/loss_checks.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

// The mean square of all elements of rows of width three; each rank's sum is divided by `count`.
using Count = double (*)(const LossCase::Inputs& own, int ranks);
LossCase mean_square(Count count) {
  return {"mean square",
          "",
          {{{3}}},
          [=](const LossCase::Inputs& x, Communicator& comm) {
            return with_placement(sum(square(x.rows[0])) / (3 * count(x, comm.size())), comm, Placement::partial);
          },
          [](const LossCase::Inputs& x) { return mean(square(x.rows[0])); }};
}

}  // namespace

TEST_CASE("every loss equals one process with the whole batch, in value and gradients") {
  for (const LossCase* c : LossCase::all()) {
    const LossComparison comparison(*c);
    for (const int n : {1, 2, 3, 5, 8}) {
      INFO(c->distributed.name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { comparison.check(comm); }));
    }
  }
}

TEST_CASE("every loss on cards equals one process on the CPU, in value and gradients") {
  SKIP_WITHOUT_A_CARD();
  for (const LossCase* c : LossCase::all()) {
    const LossComparison comparison(*c, Device::cuda);
    for (const int n : {1, 3}) {
      INFO(c->distributed.name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { comparison.check(comm); }));
    }
  }
}

TEST_CASE("finite differences confirm the gradients of every loss") {
  for (const LossCase* c : LossCase::all())
    for (const int n : {1, 3}) {
      INFO(c->distributed.name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_gradients(c->distributed, comm); }));
    }
}

TEST_CASE("the loss check refuses a mean over a rank's own samples, and a factor of the number of ranks") {
  using Inputs = LossCase::Inputs;
  const LossCase right = mean_square([](const Inputs& x, int) { return static_cast<double>(x.total); });
  const LossCase own =
      mean_square([](const Inputs& x, int) { return static_cast<double>(std::max<int64_t>(x.rows[0].shape()[0], 1)); });
  const LossCase scaled = mean_square([](const Inputs& x, int ranks) { return static_cast<double>(x.total * ranks); });
  on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
    LossComparison(right).check(comm);
    if (comm.size() == 1) return;
    for (const LossCase* wrong : {&own, &scaled})
      expect_refusal([&] { LossComparison(*wrong).check(comm); }, {"mean square: the ranks' shares are not the loss"});
  });
}
