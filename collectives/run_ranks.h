// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks as threads of this process, for tests, for teaching, and to share one card.
#include <chrono>
#include <functional>
#include <memory>

#include "weft/collectives/transport.h"

namespace weft {

// WEFT_TIMEOUT in seconds, or a minute. A Fault if it is not a number of seconds from 0.001 to 1e6.
std::chrono::milliseconds default_deadline();

// Called once, on the thread that called run_ranks, if rank `rank` has failed and another one neither ends nor makes a
// call, which would end it. A thread cannot be killed, so a program should exit with the Fault's exit code.
using Stuck = std::function<void(int rank, const Fault& fault)>;

// Calls `body` on so many ranks and returns when all have ended. If ranks fail, this throws the first failure, and the
// calls of the other ranks end with a Fault that names it. A rank that returns while others still wait for it has
// failed, too. If a rank is stuck, and `stuck` is empty or returns, this reports it on standard error and continues to
// wait. Reports count the ranks from `first` on.
void run_ranks(int ranks, const std::function<void(std::unique_ptr<Transport>)>& body,
               std::chrono::milliseconds deadline = default_deadline(), const Stuck& stuck = {}, int first = 0);

}  // namespace weft
