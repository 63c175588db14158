// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who sends what to whom in a collective between nodes, as text.
#include <string>

#include "tools/weft/plan/call_cost.h"

namespace weft::plan {

// Of a collective of this name, on tensors of so many bytes: one of every rank, or of rank 0 if it is the root. An
// Error if there is no such collective.
std::string printed_schedule(const std::string& verb, int64_t bytes, int ranks, const NodeLink& link);

}  // namespace weft::plan
