// SPDX-License-Identifier: Apache-2.0
#pragma once
// The transport of a program whose ranks may have cards.
#include "weft/collectives/transports/session.h"

namespace weft {

// The group of all ranks (Session::connect_hosts), with NCCL if that is the session's transport, or the best that works
// and every rank has a card of its own. If NCCL may be used, rank i of a node takes card i.
std::unique_ptr<Transport> connect(Session& session);

// The same for any group of this session's ranks, which compare their cards. If NCCL may be used, this rank takes card
// `place` of its node, modulo the number of cards.
std::unique_ptr<Transport> connect_cards(std::unique_ptr<Transport> group, int place, const Session& session);

// "shared memory (4 ranks), MPICH 4.0.2"
std::string description(const Transport& transport);

}  // namespace weft
