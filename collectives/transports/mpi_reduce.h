#pragma once
// MPI's own reduction, which adds in whatever order suits it.
#include <mpi.h>

#include "collectives/transport.h"

namespace weft {

// Whether MPI can do the reduction that the call names, for so many bytes: the same on every rank. MPI has no bf16.
bool mpi_reduces(const Call& call, size_t bytes);

// Begins it, where mpi_reduces; the ranks have agreed on the call. The request is to be polled until it is done, and
// both ranges left alone until then. `result` may be `mine`.
MPI_Request reduce_by_mpi(MPI_Comm comm, const Call& call, Transport::Bytes mine, std::span<std::byte> result);

}  // namespace weft
