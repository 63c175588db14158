// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_reduce.h"

#include "weft/collectives/transports/mpi/library_reduction.h"

namespace weft {
namespace {

MPI_Datatype type_of(DType type) {
  switch (type) {
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::i64: return MPI_INT64_T;
    case DType::u8: return MPI_UINT8_T;
    default: return MPI_DATATYPE_NULL;
  }
}

MPI_Op operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return MPI_PROD;
    case ReduceOp::maximum: return MPI_MAX;
    case ReduceOp::minimum: return MPI_MIN;
    default: return MPI_SUM;
  }
}

}  // namespace

bool mpi_reduces(const Call& call, size_t bytes) {
  return library_reduces(call) && call.dtype != DType::bf16 && bytes / size_of(call.dtype) <= INT32_MAX;
}

MPI_Request reduce_by_mpi(MPI_Comm comm, const Call& call, Transport::Bytes mine, std::span<std::byte> result) {
  const void* from = mine.data() == result.data() ? MPI_IN_PLACE : mine.data();
  MPI_Request request;
  MPI_Iallreduce(from, result.data(), static_cast<int>(mine.size() / size_of(call.dtype)), type_of(call.dtype),
                 operation_of(call.op), comm, &request);
  return request;
}

}  // namespace weft
