// SPDX-License-Identifier: Apache-2.0
// Every collective in two halves must give the same bits as the whole one, with local work, other collectives and other
// halves between the two. Its derivatives are checked like those of the other collectives.
#include <cstring>

#include "tests/cases/collectives/case_rows.h"
#include "tests/cases/collectives/collective_case.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

using Inputs = std::span<const Var>;
using Shapes = std::vector<Shape>;

Var flat(const Var& x) { return reshape(x, {x.size()}); }

template <LinearCollective C>
void expect_bits_of_the_whole(const C& collective, const Var& x, const Var& y, Communicator& comm) {
  const Tensor whole = comm.run(collective, x.value()).to(Device::cpu), halves = y.value().to(Device::cpu);
  require(whole.shape() == halves.shape() && std::memcmp(whole.data(), halves.data(), whole.bytes()) == 0,
          "start: the two halves give ", text(halves), ", the whole ", text(whole));
}

// `make` makes the collective for a number of ranks; `rows` gives the rows of its input on each rank.
template <class Make, class RowsOf> DistributedCase in_halves(const char* name, Make make, RowsOf rows) {
  return DistributedCase(
      name,
      [=](int rank, int ranks) {
        return Shapes{{rows(rank, ranks), 3}};
      },
      [=](Inputs x, Communicator& comm) {
        const auto collective = make(comm.size());
        Started started = start(collective, x[0], comm);
        const Var own = square(x[0]), all = all_reduce(sum(own), comm);
        const Var y = started.wait();
        expect_bits_of_the_whole(collective, x[0], y, comm);
        return concat({flat(y), flat(own), flat(all)}, 0);
      });
}

using namespace case_rows;

int64_t two(int, int) { return 2; }
int64_t two_each(int, int ranks) { return 2 * ranks; }
int64_t uneven_here(int rank, int) { return uneven(rank); }
int64_t all_of_them(int, int ranks) { return total_rows(uneven_of(ranks)); }
int64_t all_for_others(int rank, int ranks) { return total_rows(uneven_counts(ranks)[static_cast<size_t>(rank)]); }

const DistributedCase started_cases[] = {
    in_halves(
        "start all_reduce", [](int) { return AllReduce{}; }, two),
    in_halves(
        "start all_reduce mean", [](int) { return AllReduce{ReduceOp::mean}; }, two),
    in_halves(
        "start all_gather", [](int) { return AllGather{}; }, two),
    in_halves(
        "start all_gather uneven", [](int n) { return AllGather{uneven_of(n)}; }, uneven_here),
    in_halves(
        "start reduce_scatter", [](int) { return ReduceScatter{}; }, two_each),
    in_halves(
        "start reduce_scatter uneven", [](int n) { return ReduceScatter{uneven_of(n)}; }, all_of_them),
    in_halves(
        "start reduce_scatter mean",
        [](int) {
          return ReduceScatter{{}, ReduceOp::mean};
        },
        two_each),
    in_halves(
        "start reduce_scatter mean uneven",
        [](int n) {
          return ReduceScatter{uneven_of(n), ReduceOp::mean};
        },
        all_of_them),
    in_halves(
        "start broadcast", [](int n) { return Broadcast{{n - 1}}; }, two),
    in_halves(
        "start reduce", [](int n) { return Reduce{{n / 2}}; }, two),
    in_halves(
        "start reduce mean",
        [](int n) {
          return Reduce{{n / 2}, ReduceOp::mean};
        },
        two),
    in_halves(
        "start gather uneven",
        [](int n) {
          return Gather{{n - 1}, uneven_of(n)};
        },
        uneven_here),
    in_halves(
        "start scatter", [](int) { return Scatter{{0}}; }, two_each),
    in_halves(
        "start scatter uneven",
        [](int n) {
          return Scatter{{n - 1}, uneven_of(n)};
        },
        all_of_them),
    in_halves(
        "start all_to_all", [](int) { return AllToAll{}; }, two_each),
    in_halves(
        "start all_to_all uneven", [](int n) { return AllToAll{uneven_counts(n)}; }, all_for_others),
    in_halves(
        "start permute to a tree", [](int n) { return Permute{tree(n)}; }, two),
    in_halves(
        "start scan", [](int) { return Scan{}; }, two),
    in_halves(
        "start scan mean", [](int) { return Scan{ReduceOp::mean}; }, two),
    in_halves(
        "start exscan mean from the last",
        [](int) {
          return Exscan{ReduceOp::mean, true};
        },
        two),
    in_halves(
        "start exscan from the last",
        [](int) {
          return Exscan{ReduceOp::sum, true};
        },
        two),
    {"start several, wait in another order",
     [](int, int) {
       return Shapes{{2, 3}};
     },
     [](Inputs x, Communicator& comm) {
       Started first = start(AllGather{}, x[0], comm), second = start(AllReduce{}, square(x[0]), comm);
       const Var sum = second.wait();
       Started third = start(Scan{}, x[0] * sum, comm);
       const Var all = first.wait();
       return concat({flat(all), flat(third.wait())}, 0);
     }},
};

}  // namespace
}  // namespace weft
