// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "tools/weft/plan/call_cost.h"
#include "weft/collectives/communicator.h"

namespace weft::plan {

// Measures the link between two ranks or more: by sums of few bytes, and by sums of so many. The same on every rank.
Link measured_link(Communicator& comm, int64_t bytes);

}  // namespace weft::plan
