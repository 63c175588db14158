#pragma once
// Which transport connects the processes of a session.
#include "collectives/transports/session.h"

namespace weft {

// The group of all ranks. By the session's option, else by WEFT_TRANSPORT, else the best that works:
//   self     one rank
//   shared   ranks on one node, through memory
//   mpi      any ranks, through MPI's messages
//   nccl     ranks with a card each, through NCCL; what is not on a card through the best of the above
// May be called again; then the new one takes over from the old. Where NCCL may be used, rank i of a node takes its
// card i.
std::unique_ptr<Transport> connect(Session& session);

// A group of this session's with NCCL put on it, where that is the session's transport or the best that works: cards
// are compared across the group, and each rank must have one to itself. Where NCCL may be used, this rank takes card
// `place` of its node, modulo their number.
std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session);

// The same group without NCCL: enough for a session to end by, and nobody is asked about cards.
std::unique_ptr<Transport> connect_hosts(Session& session);

// The transport that is asked for; empty for the best that works.
std::string chosen_transport(const SessionOptions& options);

// "shared memory (4 ranks), MPICH 4.0.2"
std::string description(const Transport& transport);

}  // namespace weft
