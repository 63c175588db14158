// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/factory.h"

#include "weft/collectives/transports/nccl/nccl.h"

namespace weft {

std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session) {
  const std::string chosen = session.transport();
  if (chosen != "nccl" && (!chosen.empty() || group->size() == 1)) return group;
  take_card(place);
  if (const std::string obstacle = obstacle_to_nccl(*group); !obstacle.empty()) {
    if (chosen == "nccl") session.refuse_transport(obstacle);
    return group;
  }
  return connect_nccl(std::move(group), session.options().deadline, SetUp::at_once);
}

std::unique_ptr<Transport> connect(Session& session) {
  return connect_cards(session.connect_hosts(), session.rank_on_node(), session);
}

std::string description(const Transport& transport) {
  return transport.description() + ", " + (mpi_library().empty() ? "no MPI" : mpi_library());
}

}  // namespace weft
