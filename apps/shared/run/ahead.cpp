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
int64_t spare_threads(Communicator& comm) {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> machines = all_texts(name.data(), comm, Site::here("machines"));
  const auto ranks = std::count(machines.begin(), machines.end(), machines[static_cast<size_t>(comm.rank().value)]);
  return threads_beside_steps(physical_cores(), ranks);
}

}  // namespace

int64_t threads_beside_steps(int64_t cores, int64_t ranks) {
  constexpr int64_t max_useful = 8;  // these make a batch of small pictures in less time than a card needs for its step
  return std::clamp<int64_t>(cores / ranks - 1, 0, max_useful);
}

BesideSteps beside_steps(const Launch& rank) { return {spare_threads(rank.comm), rank.device, rank.timeline}; }

}  // namespace weft
