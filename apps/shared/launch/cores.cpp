// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

namespace weft {
namespace {

// The CPUs of one core have the same list of siblings: "0,8" or "0-1".
std::string core_of(int cpu, const std::filesystem::path& sys) {
  std::string siblings;
  std::ifstream file(sys / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology/thread_siblings_list");
  return file >> siblings ? siblings : std::to_string(cpu);
}

// The limit in CPUs, rounded down: "200000 100000" is two; "max 100000" is no limit, returned as infinity.
double limit_of_container(const std::filesystem::path& sys) {
  double quota = 0, period = 0;
  std::ifstream file(sys / "fs/cgroup/cpu.max");
  return file >> quota >> period && quota > 0 && period > 0 ? std::floor(quota / period) : INFINITY;
}

}  // namespace

int64_t physical_cores(const std::vector<int>& cpus, const std::filesystem::path& sys) {
  std::set<std::string> cores;
  for (const int cpu : cpus) cores.insert(core_of(cpu, sys));
  const double limit = std::min(static_cast<double>(cores.size()), limit_of_container(sys));
  return std::max<int64_t>(1, static_cast<int64_t>(limit));
}

int64_t physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  return physical_cores(cpus);
}

}  // namespace weft
