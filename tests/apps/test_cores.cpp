// SPDX-License-Identifier: Apache-2.0
// The number of ranks that are started by default.
#include "apps/shared/launch/cores.h"

#include "tests/support/catch.h"
#include "tests/support/scratch_folder.h"

using namespace weft;

TEST_CASE("physical_cores counts each allowed core once, whatever number of hardware threads it has") {
  const ScratchFolder sys;
  for (int cpu = 0; cpu < 8; ++cpu) {  // four cores with two threads each
    const auto topology = sys / ("devices/system/cpu/cpu" + std::to_string(cpu)) / "topology";
    std::filesystem::create_directories(topology);
    put(topology / "thread_siblings_list", std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
  }
  CHECK(physical_cores({0, 1, 2, 3, 4, 5, 6, 7}, sys.path) == 4);
  CHECK(physical_cores({1, 5}, sys.path) == 1);
  CHECK(physical_cores({1, 6, 7}, sys.path) == 3);
  std::filesystem::create_directories(sys / "fs/cgroup");
  put(sys / "fs/cgroup/cpu.max", "max 100000\n");
  CHECK(physical_cores({0, 1, 2, 3}, sys.path) == 4);
  put(sys / "fs/cgroup/cpu.max", "250000 100000\n");
  CHECK(physical_cores({0, 1, 2, 3}, sys.path) == 2);
  put(sys / "fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(physical_cores({0, 1, 2, 3}, sys.path) == 1);
}

TEST_CASE("physical_cores counts every CPU, and at least one, if the kernel does not report cores") {
  CHECK(physical_cores({0, 1, 2}, "/nowhere") == 3);
  CHECK(physical_cores({}, "/nowhere") == 1);
  CHECK(physical_cores() >= 1);
}
