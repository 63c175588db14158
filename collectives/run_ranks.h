#pragma once
// Ranks as threads of this process: for tests, for teaching, and to share one card.
#include <chrono>
#include <functional>
#include <memory>

#include "collectives/transport.h"

namespace weft {

// WEFT_TIMEOUT, in seconds, or a minute. A Fault if that is not a number of seconds from 0.001 to 1e6.
std::chrono::milliseconds default_deadline();

// Called once, on the thread that called run_ranks, if a rank has failed and others do not end although their next call
// would: no thread can be made to end. A program leaves then, by the Fault's exit code. `rank` is the one that failed.
using Stuck = std::function<void(int rank, const Fault& fault)>;

// Calls `body` as n ranks and returns when all are done. If ranks fail, the first failure is thrown here; the other
// ranks' calls end with a Fault that names it. A rank that returns while others still wait for it is a failure, too.
// Where a rank neither ends nor calls, and `stuck` is empty or returns, standard error is told and the wait goes on.
void run_ranks(int n, const std::function<void(std::unique_ptr<Transport>)>& body,
               std::chrono::milliseconds deadline = default_deadline(), const Stuck& stuck = {});

}  // namespace weft
