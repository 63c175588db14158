// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transport of a program whose ranks may have cards.
#include "weft/collectives/transports/session.h"

namespace weft {

// The group of all ranks: that of Session::connect_hosts, to which NCCL is added if the session requests it, or if it
// requests no transport and NCCL works. Every rank needs a card of its own. If NCCL may be used, rank i of a node takes
// card i.
std::unique_ptr<Transport> connect(Session& session);

// Adds NCCL by the same rule to any group of this session's ranks, which compare their cards. If NCCL may be used, this
// rank takes card `place` of its node, modulo the number of cards.
std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session);

// "shared memory (4 ranks), MPICH 4.0.2"
std::string description(const Transport& transport);

}  // namespace weft
