#include "collectives/transports/factory.h"

#include <cstdlib>

#include "collectives/transports/shared_memory.h"

namespace weft {
namespace {

std::string choice(const Session& session) {
  if (!session.options().transport.empty()) return session.options().transport;
  if (const char* given = std::getenv("WEFT_TRANSPORT"); given && *given) return given;
  if (session.size() == 1) return "self";
  return session.processes()->on_one_node() ? "shared" : "mpi";
}

}  // namespace

std::unique_ptr<Transport> connect(Session& session) {
  const std::string chosen = choice(session);
  require(chosen == "self" || chosen == "shared" || chosen == "mpi", "transport '", chosen,
          "': there are self, shared and mpi");
  require(chosen != "self" || session.size() == 1, "transport self: the session has ", session.size(), " ranks");
  require(chosen != "mpi" || session.processes(), "transport mpi: this program was built without MPI");
  if (chosen == "mpi") return session.processes()->connect(session.job());
  require(session.size() == 1 || session.processes()->on_one_node(),
          "transport shared: the ranks are on several nodes");
  using Sight = SharedMemory::Sight;
  return SharedMemory::connect(session.job(), session.rank_on_node(),
                               session.size() == 1 ? Sight::everything : Sight::the_job);
}

std::string description(const Session& session, const Transport& transport) {
  return transport.description() + ", " + (session.processes() ? session.processes()->library() : "no MPI");
}

}  // namespace weft
