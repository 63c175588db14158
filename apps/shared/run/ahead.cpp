// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/ahead.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "apps/shared/launch/cores.h"
#include "apps/shared/launch/launch.h"
#include "weft/collectives/checks/agreement.h"

namespace weft {
namespace {

// A process that is bound to cores of its own sees only these, so it counts the other ranks against too few cores.
bool has_spare_core(Communicator& comm) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> machines = all_texts(name.data(), comm, Site::here("machines"));
  const auto ranks = std::count(machines.begin(), machines.end(), machines[static_cast<size_t>(comm.rank().value)]);
  return physical_cores() >= 2 * ranks;
}

}  // namespace

BesideSteps beside_steps(const Launch& rank) { return {has_spare_core(rank.comm), rank.device, rank.timeline}; }

}  // namespace weft
