// The checks that walk the loss cases: every loss and every quantizer, in each of its variants.
#include <catch2/catch.hpp>

#include "tests/cuda_checks.h"
#include "tests/distributed_checks.h"
#include "tests/loss_checks.h"

using namespace weft;

TEST_CASE("every loss equals that of one process with the whole batch, in value and gradients") {
  for (const LossCase* c : LossCase::all()) {
    const LossComparison comparison(*c);
    for (const int n : {1, 2, 3, 5, 8}) {
      INFO(c->distributed.name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) {
        const auto [value, gradient] = comparison(comm);
        require(value <= 1e-11 && gradient <= 1e-11, "value off by ", value, ", gradient by ", gradient);
      }));
    }
  }
}

TEST_CASE("every loss on cards equals that of one process on the CPU, in value and gradients") {
  SKIP_WITHOUT_A_CARD();
  for (const LossCase* c : LossCase::all()) {
    const LossComparison comparison(*c, Device::cuda);
    for (const int n : {1, 3}) {
      INFO(c->distributed.name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) {
        const auto [value, gradient] = comparison(comm);
        require(value <= 1e-11 && gradient <= 1e-11, "value off by ", value, ", gradient by ", gradient);
      }));
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
