// SPDX-License-Identifier: Apache-2.0
// Every distributed case on as many ranks as a large job has, and in groups of several sizes. The files of the suite
// 'collectives' go to more depth, on few ranks.
#include <bit>

#include "tests/support/distributed_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/run_ranks.h"

using namespace weft;

TEST_CASE("every distributed case matches its specification on 64 and 256 ranks") {
  const int n = GENERATE(64, 256);
  CHECK_NOTHROW(run_ranks(n, [](Communicator& world) {
    for (const DistributedCase* c : DistributedCase::all()) check_specification(*c, world);
  }));
}

TEST_CASE("every distributed case matches its specification in groups of 2 to 64 ranks at the same time") {
  CHECK_NOTHROW(run_ranks(2 + 4 + 8 + 16 + 32 + 64, [](Communicator& world) {
    const int r = number(world), size = static_cast<int>(std::bit_floor(static_cast<unsigned>(r + 2)));
    const auto group = world.split(size, -r);
    require(group->size() == size, "a group of ", group->size(), " ranks, not ", size);
    for (const DistributedCase* c : DistributedCase::all()) check_specification(*c, *group);
  }));
}
