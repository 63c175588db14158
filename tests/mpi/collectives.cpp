// SPDX-License-Identifier: Apache-2.0
// Every distributed case under mpiexec: its specification, its first and second derivatives, and the same bits as on
// threads, in the whole group and in a subgroup.
#include <cstdio>

#include "tests/support/distributed_checks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/transports/factory.h"

using namespace weft;

namespace {

std::vector<double> reduced(Communicator& comm) {
  const Tensor mine = Tensor::uniform({1003}, {7, static_cast<uint64_t>(comm.rank().value)});
  return comm.all_reduce(mine).values();
}

void check_everything(Communicator& comm) {
  for (const DistributedCase* c : DistributedCase::all()) {
    check_specification(*c, comm);
    check_gradients(*c, comm);
  }
}

int body(Session& session) {
  Communicator world(connect(session));
  check_everything(world);
  const auto odd_or_even = world.split(world.rank().value % 2, -world.rank().value);
  check_everything(*odd_or_even);

  const std::vector<double> ours = reduced(world);
  run_ranks(world.size(), [&](Communicator& threads) {
    require(reduced(threads) == ours, "ranks as threads and as processes differ in the bits of a sum");
  });
  if (world.rank().value == 0)
    std::printf("%zu distributed cases hold on %s\n", DistributedCase::all().size(), world.description().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
