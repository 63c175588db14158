// SPDX-License-Identifier: Apache-2.0
// Between processes without shared memory a collective sends the bytes of its portions and nothing else, under mpiexec.
// This holds for transfers in pieces and for started collectives, which are sent whole.
#include <mpi.h>

#include <cstdio>

#include "weft/collectives/cases/case_rows.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/factory.h"

using namespace weft;

static int64_t bytes_sent = 0;

// Replaces the library's function, as MPI's profiling interface allows.
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  int size = 0;
  MPI_Type_size(type, &size);
  bytes_sent += int64_t{count} * size;
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}

namespace {

constexpr int64_t columns = 40'001;  // so many that portions are sent in several pieces

void expect_sent(const char* what, int64_t expected) {
  const int64_t sent = std::exchange(bytes_sent, 0);
  require(sent == expected, what, " has sent ", sent, " bytes, not ", expected);
}

template <class Verb> void check(const Verb& verb, const Shape& shape, Communicator& comm) {
  const Tensor x = Tensor::uniform(shape, {1, static_cast<uint64_t>(comm.rank().value)});
  const int64_t unit = (Verb::by_rows ? shape.product(1, shape.rank()) : shape.size()) * 4;
  int64_t expected = 0;
  for (int r = 0; r < comm.size(); ++r)
    if (r != comm.rank().value) expected += verb.portion(r, comm.rank().value).count * unit;
  comm.barrier();
  bytes_sent = 0;
  const Tensor whole = comm.run(verb, x);
  if constexpr (!std::is_same_v<Verb, AllReduce>) expect_sent(name(verb.verb()), expected);
  bytes_sent = 0;
  Pending pending = comm.start(verb, x);
  expect_sent("start", expected);
  const Tensor halves = pending.wait();
  require(whole.shape() == halves.shape() && whole.values() == halves.values(), name(verb.verb()), ": another result");
}

int body(Session& session) {
  Communicator comm(connect_hosts(session));
  const int n = comm.size(), me = comm.rank().value;
  const GroupRank root{n - 1};
  const Rows rows = case_rows::uneven_of(n);
  const Counts counts = case_rows::uneven_counts(n);
  Sources next;
  for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
  const Shape mine{rows_of_rank(rows, me), columns}, all{total_rows(rows), columns};
  check(AllGather{rows}, mine, comm);
  check(ReduceScatter{rows}, all, comm);
  check(Gather{root, rows}, mine, comm);
  check(Scatter{root, rows}, all, comm);
  check(AllToAll{counts}, {total_rows(counts[static_cast<size_t>(me)]), columns}, comm);
  check(Broadcast{root}, {7, columns}, comm);
  check(Reduce{root}, {7, columns}, comm);
  check(Permute{next}, {7, columns}, comm);
  check(Scan{}, {7, columns}, comm);
  check(AllReduce{}, {7, columns}, comm);
  // An all_reduce sends each rank its slice, and each reduced slice to every rank, which MPI does itself.
  const Tensor x = Tensor::uniform({n * 16 * 1024}, {2, static_cast<uint64_t>(me)});
  bytes_sent = 0;
  comm.all_reduce(x);
  expect_sent("all_reduce", (n - 1) * 16 * 1024 * 4);
  if (me == 0) std::printf("every collective has sent its portions on %s\n", comm.description().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
