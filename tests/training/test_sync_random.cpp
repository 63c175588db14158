// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_steps.h"

using namespace weft;

TEST_CASE("random programs under GradientSync have the plain sums of gradients, bit by bit",
          "[r29][r30][r32][r33][r34]") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    const int ranks = std::array{2, 3, 5, 1}[seed % 4];
    CHECK_NOTHROW(run_ranks(ranks, [&](Communicator& comm) {
      RandomProgram program(seed, comm);
      for (int step = 0; step < 4; ++step) program.step();
    }));
  }
}
