// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures the link between nodes when a job starts.
#include <mpi.h>

#include <functional>

#include "weft/collectives/transports/message_cost.h"

namespace weft {

// The first processes of the nodes exchange a few messages in pairs, all pairs at the same time, for about 40 ms at
// 1 Gbit. The slowest pair counts, so all processes get the same numbers. `wait` waits for a request.
Link measured_link(MPI_Comm all, bool first_on_node, const std::function<void(MPI_Request&)>& wait);

}  // namespace weft
