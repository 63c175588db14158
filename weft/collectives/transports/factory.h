// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which transport connects the processes of a session.
#include "weft/collectives/transports/session.h"

namespace weft {

// The group of all ranks. The session's option selects the transport, else WEFT_TRANSPORT, else the best that works:
//   self     one rank
//   shared   ranks on one node, by shared memory
//   mpi      any ranks, by MPI messages
//   nodes    ranks on several nodes: by shared memory on each, and by MPI messages between one rank of each
//   nccl     ranks with a card each, by NCCL; host memory by the best of the above
// A second call returns another view of the same group. If NCCL may be used, rank i of a node takes card i.
std::unique_ptr<Transport> connect(Session& session);

// Adds NCCL to a group of this session if that is the session's transport, or the best that works. The ranks compare
// their cards, because each needs a card of its own. If NCCL may be used, this rank takes card `place` of its node,
// modulo the number of cards.
std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session);

// The group of all ranks without NCCL, for which no cards are compared.
std::unique_ptr<Transport> connect_hosts(Session& session);

// The transport that the options or WEFT_TRANSPORT request; empty for the best that works.
std::string chosen_transport(const SessionOptions& options);

// "shared memory (4 ranks), MPICH 4.0.2"
std::string description(const Transport& transport);

}  // namespace weft
