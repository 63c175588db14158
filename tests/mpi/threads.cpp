// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of several processes, under mpiexec: the argument is how many of each. All that a transport
// promises, every distributed case in the whole group and in a subgroup, and random steps of gradient sums.
#include <cstdio>

#include "tests/collectives/transport_checks.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/random_steps.h"
#include "weft/collectives/transports/session.h"

using namespace weft;

namespace {

void check(std::unique_ptr<Transport> group) {
  checks::everything_works(*group);
  checks::groups_come_and_go(*group, 20);
  Communicator world(std::move(group));
  const auto odd_or_even = world.split(world.rank().value % 2, -world.rank().value);
  for (const DistributedCase* c : DistributedCase::all()) {
    check_specification(*c, world);
    check_gradients(*c, *odd_or_even);
  }
  for (unsigned seed = 0; seed < 5; ++seed) {
    RandomProgram program(seed, world);
    for (int step = 0; step < 4; ++step) program.step();
  }
  if (world.rank().value == 0) std::printf("everything holds on %s\n", world.description().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  SessionOptions options;
  options.ranks_are_threads = true;
  const auto body = [&](Session& session) {
    session.run_ranks(std::atoi(argv[1]), check);
    return 0;
  };
  return run_session(argc, argv, body, options);
}
