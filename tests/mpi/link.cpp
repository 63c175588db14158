// SPDX-License-Identifier: Apache-2.0
// What processes measure of the link between them, under mpiexec, by a clock that only messages move.
#include <mpi.h>

#include <cmath>
#include <cstdio>

#include "weft/collectives/transports/mpi/mpi_link.h"
#include "weft/engine/tensor/error.h"

using namespace weft;

namespace {

// What a message takes, and each of its bytes, in seconds.
struct Clock {
  double now, message, byte;

  void move(int bytes) { now += message + bytes * byte; }
} the_clock;

}  // namespace

// These replace the library's functions, as MPI's profiling interface allows.
extern "C" double MPI_Wtime() { return the_clock.now; }
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  the_clock.move(count);
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}
extern "C" int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  the_clock.move(count);
  return PMPI_Irecv(to, count, type, from, tag, comm, request);
}

namespace {

void expect_near(const char* what, double found, double expected) {
  require(std::abs(found - expected) <= 1e-9 * expected, "the ", what, " is ", found, ", not ", expected);
}

// The slowest pair's messages take this. It sends so many pieces of 16 KiB, which take at least 4 ms, or 16.
void check(double message, double byte, int pieces) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (const int on_own_node : {size, size - 1}) {
    const int slowest = on_own_node / 2, pair = rank / 2 + 1;
    const double part = pair < slowest ? 0.5 : 1;
    the_clock = {0, part * message, part * byte};
    const Link link = measured_link(MPI_COMM_WORLD, rank < on_own_node,
                                    [](MPI_Request& request) { MPI_Wait(&request, MPI_STATUS_IGNORE); });
    const double empty = 2 * message + 9 * byte;  // eight bytes, and the answer of one
    const double piece = 1 << 14, full = (pieces + 1) * message + (pieces * piece + 1) * byte;
    expect_near("latency", link.latency, empty / 2);
    expect_near("overhead", link.overhead, message + 8 * byte);
    expect_near("bandwidth", link.bandwidth, pieces * piece / std::max(full - empty, full / 2));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  MPI_Init(&argc, &argv);
  check(1e-6, 1e-9, 16);
  check(1e-6, 2e-8, 16);
  check(1e-6, 1e-7, 4);
  check(1e-6, 1e-6, 1);
  check(0.1, 1e-6, 1);
  MPI_Finalize();
  return 0;
} catch (const std::exception& error) {
  std::printf("%s\n", error.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
}
