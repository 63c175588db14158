#pragma once
// Ranks as threads of this process: for tests, for teaching, and to share one card.
#include <chrono>
#include <functional>
#include <memory>

#include "collectives/transport.h"

namespace weft {

std::chrono::milliseconds default_deadline();  // WEFT_TIMEOUT, in seconds, or a minute

// Calls `body` as n ranks and returns when all are done. If ranks fail, the first failure is thrown here; the other
// ranks' calls end with a Fault that names it. A rank that returns while others still wait for it is a failure, too.
void run_ranks(int n, const std::function<void(std::unique_ptr<Transport>)>& body,
               std::chrono::milliseconds deadline = default_deadline());

}  // namespace weft
