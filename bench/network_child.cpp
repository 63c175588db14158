// SPDX-License-Identifier: Apache-2.0
// One rank of bench/against_links: sums over ranks on several nodes, beside MPI's own. Rank 0 prints a JSON line per
// size: the seconds that each takes.
#include <mpi.h>

#include "bench/measuring/ranks.h"

namespace weft::bench {
namespace {

void latency(Ranks& ranks) {
  const Tensor x = Tensor::full({2}, 1);
  Tensor y = Tensor::like(x), z = Tensor::like(x);
  constexpr int calls = 200;
  const Rounds rounds(
      {ranks.burst([&] { ranks.group().all_reduce(x, y); }, calls),
       ranks.burst([&] { MPI_Allreduce(x.data(), z.mutate(), 2, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }, calls)},
      5, 1);
  ranks.print("all_reduce", "8 B", rounds.median(0), rounds.median(1), 8);
}

void bandwidth(Ranks& ranks, int64_t mebibytes) {
  Communicator& group = ranks.group();
  const int64_t count = (mebibytes << 20) / 4, part = count / group.size();
  const Tensor x = Tensor::full({part * group.size()}, 1);
  Tensor y = Tensor::like(x), z = Tensor({part});
  const auto theirs = [&] {
    MPI_Allreduce(x.data(), y.mutate(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  const auto their_halves = [&] {
    const int n = static_cast<int>(part);
    MPI_Reduce_scatter_block(x.data(), z.mutate(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(z.data(), n, MPI_FLOAT, y.mutate(), n, MPI_FLOAT, MPI_COMM_WORLD);
  };
  const int calls = static_cast<int>(std::max<int64_t>(1, 8 / mebibytes));  // 1 MiB takes only a few time slices
  const Rounds rounds(
      {ranks.burst([&] { group.all_reduce(x, y); }, calls), ranks.burst(theirs, calls),
       ranks.burst([&] { group.all_gather(group.reduce_scatter(x)); }, calls), ranks.burst(their_halves, calls)},
      5, 1);
  const std::string size = std::to_string(mebibytes) + " MiB";
  const auto bytes = static_cast<double>(x.bytes());
  ranks.print("all_reduce", size, rounds.median(0), rounds.median(1), bytes);
  ranks.print("reduce_scatter and all_gather", size, rounds.median(2), rounds.median(3), bytes);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::run_session(argc, argv, [&](weft::Session& session) {
    weft::bench::Ranks ranks(session);
    weft::bench::latency(ranks);
    for (int i = 1; i < argc; ++i) weft::bench::bandwidth(ranks, std::stoll(argv[i]));
    return 0;
  });
}
