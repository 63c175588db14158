// SPDX-License-Identifier: Apache-2.0
#pragma once
// NCCL for ranks that each have a card of their own. Only nccl.cpp uses it; a build without it links nccl_absent.cpp.
#include <memory>
#include <string>

#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transport.h"

namespace weft {

// Makes card i of this node, modulo their number, the card of the calling thread. Does nothing if there is no card.
void take_card(int i);

// Why this group cannot use NCCL, the same text on every rank; empty if it can. Every rank must have taken its card,
// because NCCL rejects two ranks on one card.
std::string obstacle_to_nccl(Transport& group);

// When cuBLAS, cuDNN and a group's communicator are set up, which may wait for the card. If that waits for a peer by
// then, and the peer for this rank, none of them goes on; so programs do it at once, also for groups that are split
// off.
enum class SetUp : bool { with_first_use, at_once };

// The group, with NCCL for the memory of its cards; an Error if there is an obstacle. A call that waits for other cards
// longer than the deadline ends in a Fault.
std::unique_ptr<Transport> connect_nccl(std::unique_ptr<Transport> group,
                                        std::chrono::milliseconds deadline = default_deadline(),
                                        SetUp set_up = SetUp::with_first_use);

}  // namespace weft
