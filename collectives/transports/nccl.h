#pragma once
// NCCL for ranks that each have a card of their own. Only nccl.cpp knows it; a build without it links nccl_absent.cpp.
#include <memory>
#include <string>

#include "collectives/run_ranks.h"
#include "collectives/transport.h"

namespace weft {

// Card i of this node, modulo their number, becomes the one of the calling thread. Nothing where there is none.
void take_card(int i);

// What keeps this group from using NCCL, the same on every rank; empty if nothing does. Every rank must have taken its
// card: NCCL refuses two ranks on one.
std::string obstacle_to_nccl(Transport& group);

// The group with NCCL for the memory of its cards, if nothing keeps it from that. NCCL itself starts with the first
// call that needs it. What waits for peers' cards longer than the deadline ends in a Fault.
std::unique_ptr<Transport> connect_nccl(std::unique_ptr<Transport> group,
                                        std::chrono::milliseconds deadline = default_deadline());

}  // namespace weft
