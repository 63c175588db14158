// SPDX-License-Identifier: Apache-2.0
// MPI's own reductions against ours, under mpiexec by messages, and the cases where MPI has none.
#include <cmath>
#include <cstdio>

#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/mpi/mpi_group.h"
#include "weft/collectives/transports/mpi/mpi_reduce.h"
#include "weft/collectives/transports/session.h"

using namespace weft;

static int reductions_begun = 0;

// This replaces the library's function, as MPI's profiling interface allows.
extern "C" int MPI_Iallreduce(const void* from, void* to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  ++reductions_begun;
  return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

namespace {

Call call_of(const Tensor& x, ReduceOp op) { return describe(Verb::all_reduce, x, Site::here(), op); }

std::span<const std::byte> bytes_of(const Tensor& x) { return {x.data<std::byte>(), x.bytes()}; }

Tensor reduced_by_mpi(Session& session, const Tensor& x, ReduceOp op, bool in_place) {
  Tensor y = in_place ? x.clone() : Tensor::like(x);
  const Transport::Bytes mine = in_place ? bytes_of(y) : bytes_of(x);
  MPI_Request request = reduce_by_mpi(MPI_COMM_WORLD, call_of(x, op), mine, {y.mutate<std::byte>(), y.bytes()});
  finish(*session.job(), session.rank_on_node(), request);
  return y;
}

// The largest difference, relative to max(1, |value|).
double tolerance(DType type) { return type == DType::f64 ? 1e-12 : type == DType::f32 ? 1e-5 : 0; }

void check_agrees(Session& session, Communicator& comm, DType type, ReduceOp op, int64_t size) {
  const auto rank = static_cast<uint64_t>(comm.rank().value);
  const Tensor x = (is_floating(type) ? Tensor::normal({size}, {5, rank}, 0, 1, type)
                                      : Tensor::uniform({size}, {5, rank}, 0, 7).to(type));
  const std::vector<double> ordered = comm.all_reduce(x, op).values();
  for (const bool in_place : {false, true}) {
    const std::vector<double> any = reduced_by_mpi(session, x, op, in_place).values();
    for (size_t i = 0; i < any.size(); ++i)
      require(std::abs(any[i] - ordered[i]) <= tolerance(type) * std::max(1.0, std::abs(ordered[i])), "MPI's ", op,
              " of ", type, " ", size, ": element ", i, " is ", any[i], ", ours ", ordered[i]);
  }
}

// A group whose order is free leaves to MPI what MPI can do, and only that.
void check_chosen(Communicator& ordered, Communicator& free) {
  const auto rank = static_cast<uint64_t>(free.rank().value);
  for (const DType type : {DType::f32, DType::bf16})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::maximum}) {
      const Tensor x = Tensor::uniform({1000}, {6, rank}).to(type);
      const std::vector<double> expected = ordered.all_reduce(x, op).values();
      reductions_begun = 0;
      const std::vector<double> any = free.all_reduce(x, op).values();
      const bool by_mpi = type == DType::f32 && op != ReduceOp::maximum;
      require(reductions_begun == by_mpi, reductions_begun, " reductions by MPI in a ", op, " of ", type);
      for (size_t i = 0; i < any.size(); ++i)
        require(std::abs(any[i] - expected[i]) <= tolerance(type) * free.size(), "the ", op, " of ", type, ": element ",
                i, " is ", any[i], ", in order ", expected[i]);
    }
}

int body(Session& session) {
  std::unique_ptr<Transport> group = session.connect_hosts();
  Communicator free(group->split(0, 0, Site::here()), Reductions::fast), comm(std::move(group));
  check_chosen(comm, free);
  int agree = 0;
  for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum}) {
      const bool extreme = op == ReduceOp::maximum || op == ReduceOp::minimum;
      const Call call = call_of(Tensor({1}, type), op);
      require(mpi_reduces(call, 100) == (type != DType::bf16 && !(extreme && is_floating(type))), "mpi_reduces: ", op,
              " of ", type);
      if (!mpi_reduces(call, 100)) continue;
      for (const int64_t size : {0, 1, 3, 1000, 300'007}) check_agrees(session, comm, type, op, size), ++agree;
    }
  const Call sum_of_f32 = call_of(Tensor({1}), ReduceOp::sum);
  require(mpi_reduces(sum_of_f32, size_t{4} * INT32_MAX), "mpi_reduces: as many as MPI can count");
  require(!mpi_reduces(sum_of_f32, (size_t{4} * INT32_MAX) + 4), "mpi_reduces: more than MPI can count");

  const Tensor x = Tensor::full({3}, comm.rank().value, DType::f64);
  const double sum = comm.size() * (comm.size() - 1) / 2;
  require(reduced_by_mpi(session, x, ReduceOp::mean, false).values() == std::vector<double>(3, sum),
          "a mean is left as the sum, for the caller to scale");
  if (session.rank() == 0) std::printf("%d reductions by MPI agree on %d processes\n", agree, comm.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
