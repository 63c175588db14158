// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/factory.h"

#include <cstdlib>

#include "weft/collectives/transports/nccl/nccl.h"
#include "weft/collectives/transports/shared/shared_memory.h"

namespace weft {
namespace {

std::string best_between_hosts(const Session& session) {
  if (session.size() == 1) return "self";
  if (session.processes()->on_one_node()) return "shared";
  return session.processes()->one_on_each_node() ? "mpi" : "nodes";
}

[[noreturn]] void refuse(const std::string& transport) { throw Fault(exit_codes::usage, "transport " + transport); }

}  // namespace

std::string chosen_transport(const SessionOptions& options) {
  if (!options.transport.empty()) return options.transport;
  const char* given = std::getenv("WEFT_TRANSPORT");
  return given ? given : "";
}

std::unique_ptr<Transport> connect_hosts(Session& session) {
  std::string chosen = chosen_transport(session.options());
  if (chosen.empty() || chosen == "nccl") chosen = best_between_hosts(session);
  const bool by_messages = chosen == "mpi" || chosen == "nodes";
  if (chosen != "self" && chosen != "shared" && !by_messages)
    refuse("'" + chosen + "': there are self, shared, mpi, nodes and nccl");
  if (chosen == "self" && session.size() > 1) refuse("self: the session has " + text(session.size()) + " ranks");
  if (by_messages && !session.processes()) refuse(chosen + ": this program was built without MPI");
  if (chosen == "nodes" && session.size() > 1) return session.processes()->connect_nodes(session.job());
  if (by_messages) return session.processes()->connect(session.job());
  if (session.size() > 1 && !session.processes()->on_one_node()) refuse("shared: the ranks are on several nodes");
  using AddressSpace = SharedMemory::AddressSpace;
  return SharedMemory::connect(session.job(), session.rank_on_node(),
                               session.size() == 1 ? AddressSpace::one_process : AddressSpace::job_memory);
}

std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session) {
  const std::string chosen = chosen_transport(session.options());
  if (chosen != "nccl" && (!chosen.empty() || group->size() == 1)) return group;
  take_card(place);
  if (chosen.empty() && !obstacle_to_nccl(*group).empty()) return group;
  return connect_nccl(std::move(group), session.options().deadline);
}

std::unique_ptr<Transport> connect(Session& session) {
  return connect_cards(connect_hosts(session), session.rank_on_node(), session);
}

std::string description(const Transport& transport) {
  return transport.description() + ", " + (mpi_library().empty() ? "no MPI" : mpi_library());
}

}  // namespace weft
