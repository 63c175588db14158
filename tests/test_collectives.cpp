// The checks that walk the distributed cases: every collective, and everything else that spans ranks and says what it
// does. tests/mpi/collectives.cpp makes the same checks under mpiexec.
#include <catch2/catch.hpp>

#include "tests/cuda_checks.h"
#include "tests/distributed_checks.h"

using namespace weft;

namespace {
constexpr int group_sizes[] = {1, 2, 3, 4, 5, 8};
}

TEST_CASE("every distributed case does what its specification says, on any number of ranks") {
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : group_sizes) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_specification(*c, comm); }));
    }
}

TEST_CASE("every distributed case has exact first and second derivatives, on any number of ranks") {
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : group_sizes) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_gradients(*c, comm); }));
    }
}

TEST_CASE("the same holds on a card that the ranks share") {
  SKIP_WITHOUT_A_CARD();
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : {1, 3}) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) {
        check_specification(*c, comm, Device::cuda);
        check_gradients(*c, comm, Device::cuda);
      }));
    }
}

TEST_CASE("the same holds in groups that do not start at the first rank") {
  for (const DistributedCase* c : DistributedCase::all()) {
    INFO(c->name);
    CHECK_NOTHROW(run_ranks(5, [&](Communicator& world) {
      const int r = world.rank().value;
      const auto group = world.split(r % 2 == 0 ? 0 : 1, -r);  // ranks 4 2 0 and 3 1
      require(group->global(group->rank()).value == r, "a rank's global number is lost in a split");
      check_specification(*c, *group);
      check_gradients(*c, *group);
    }));
  }
}
