// SPDX-License-Identifier: Apache-2.0
#pragma once
// MPI's own reduction, which may add in any order.
#include <mpi.h>

#include "weft/collectives/transport.h"

namespace weft {

// Whether MPI can do the call's reduction of this many bytes; the same on every rank. MPI has no bf16.
bool mpi_reduces(const Call& call, size_t bytes);

// Begins a reduction for which mpi_reduces holds, after the ranks have agreed on the call. Until the request is done,
// both ranges must not change. `result` may be `mine`.
MPI_Request reduce_by_mpi(MPI_Comm comm, const Call& call, Transport::Bytes mine, std::span<std::byte> result);

}  // namespace weft
