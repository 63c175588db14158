// SPDX-License-Identifier: Apache-2.0
// The law of traffic between processes without shared memory, under mpiexec: in every collective, a rank receives at
// most 1.05 times the bytes of the best known algorithm, and 256 bytes for each message. Rank 0 prints a table.
// Each is done as a whole and in two halves, with the same bits.
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "tests/cases/collectives/case_rows.h"
#include "tests/collectives/transport_checks.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/mpi/mpi_group.h"
#include "weft/collectives/transports/sent_messages.h"
#include "weft/collectives/transports/session.h"

using namespace weft;

static int64_t bytes_sent = 0, bytes_received = 0, messages_received = 0, longest_sent = 0;

static int64_t bytes_of(int64_t count, MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return count * size;
}
static void count_received(int64_t bytes, int64_t messages) {
  bytes_received += bytes;
  messages_received += messages;
}
// A gathering takes no fewer messages than doublings of what a rank has.
static int doublings(MPI_Comm comm) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
}

// These replace the library's functions, as MPI's profiling interface allows.
extern "C" int MPI_Isend(const void* from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  bytes_sent += bytes_of(count, type);
  longest_sent = std::max(longest_sent, bytes_of(count, type));
  return PMPI_Isend(from, count, type, to, tag, comm, request);
}
extern "C" int MPI_Irecv(void* to, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  count_received(bytes_of(count, type), 1);
  return PMPI_Irecv(to, count, type, from, tag, comm, request);
}
extern "C" int MPI_Iallgather(const void* from, int count, MPI_Datatype type, void* to, int each, MPI_Datatype its_type,
                              MPI_Comm comm, MPI_Request* request) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  count_received((n - 1) * bytes_of(each, its_type), doublings(comm));
  return PMPI_Iallgather(from, count, type, to, each, its_type, comm, request);
}
extern "C" int MPI_Iallgatherv(const void* from, int count, MPI_Datatype type, void* to, const int* counts,
                               const int* places, MPI_Datatype its_type, MPI_Comm comm, MPI_Request* request) {
  int n = 0, me = 0;
  MPI_Comm_size(comm, &n);
  MPI_Comm_rank(comm, &me);
  count_received(bytes_of(std::accumulate(counts, counts + n, int64_t{0}) - counts[me], its_type), doublings(comm));
  return PMPI_Iallgatherv(from, count, type, to, counts, places, its_type, comm, request);
}

namespace {

// Checks collectives of one size: rows of so many columns, all of f32.
class Law {
 public:
  Law(Communicator& comm, const Link& link, int64_t columns) : comm_(comm), columns_(columns), link_(link) {}

  // `best` is how many rows this rank receives in the best algorithm.
  template <LinearCollective C> void check(const C& collective, int64_t rows, double best) {
    const Tensor x = Tensor::uniform({rows, columns_}, {1, static_cast<uint64_t>(comm_.rank().value)});
    const std::string what = name(collective.verb());
    const Tensor whole = counted(what, best, [&] { return comm_.run(collective, x); });
    expect_schedule(collective, x);
    const Tensor halves = counted(what + ", started", best, [&] { return comm_.start(collective, x).wait(); });
    require(whole.shape() == halves.shape() && whole.values() == halves.values(), what,
            ": another result if it is started");
  }

 private:
  // What this rank has just received is what the schedule says, and the calls, which ranks compare.
  template <LinearCollective C> void expect_schedule(const C& collective, const Tensor& x) {
    const int n = comm_.size(), me = comm_.rank().value;
    const size_t unit = C::by_rows ? static_cast<size_t>(columns_ * 4) : x.bytes();
    const auto reads = [&](int reader, int source) {
      const auto [from, count, to] = collective.portion(reader, source);
      return ByteRange{static_cast<size_t>(from) * unit, static_cast<size_t>(from + count) * unit};
    };
    size_t longest = 0, received = 0;
    bool equal = true;
    for (int r = 0; r < n; ++r) {
      longest = std::max(longest, static_cast<size_t>(collective.exposed(r)) * unit);
      equal = equal && reads(r, 0).size() == reads(0, 0).size();
    }
    Movement movement = adds(collective, n) ? Movement::some_sums : traits(collective.verb()).movement;
    if (Slicing<C>) movement = equal ? Movement::shares : Movement::uneven_shares;
    if (collective.verb() == Verb::all_reduce) movement = Movement::sum;
    for (const auto& step : messages_of(message_schedule(movement, static_cast<double>(longest), n, link_), reads))
      for (const auto& message : step.messages) received += message.to == me ? message.bytes : 0;
    const size_t compared = 64 * static_cast<size_t>(n - 1);
    require(last_received_ == compared + received, name(collective.verb()), " of rows of ", columns_, " has received ",
            last_received_, " bytes, ", compared, " of them to compare calls; its schedule says ", received);
  }

  template <class Collective> Tensor counted(const std::string& what, double best, const Collective& collective) {
    comm_.barrier();
    bytes_received = messages_received = 0;
    const Tensor result = collective();
    last_received_ = static_cast<size_t>(bytes_received);
    const auto received = static_cast<double>(bytes_received), row = static_cast<double>(columns_ * 4);
    const double headers = 256 * static_cast<double>(messages_received);
    require(received <= 1.05 * best * row + headers, what, " of rows of ", columns_, " has received ", received,
            " bytes in ", messages_received, " messages, the best algorithm receives ", best * row);
    if (columns_ > 1'000) show(what.c_str(), received / row, best);
    return result;
  }
  // The most that any rank has received and must receive. What is less than the best has not been counted.
  void show(const char* what, double received, double best) {
    const std::vector<double> most = comm_.all_reduce(Tensor::from({2}, {received, best}), ReduceOp::maximum).values();
    require(most[0] >= 0.95 * most[1], what, " has received only ", most[0], " rows of ", most[1]);
    if (comm_.rank().value == 0) std::printf("%-26s %8.3f rows, the best %8.3f\n", what, most[0], most[1]);
  }

  Communicator& comm_;
  const int64_t columns_;
  const Link link_;
  size_t last_received_ = 0;
};

// The best that is known, in rows that a rank receives. Data that only move are received once. A sum for all ranks is
// best reduced in slices, which are then gathered: a rank receives n-1 times its slice, and all other slices. A sum for
// one rank can take less, one tensor, but only in a chain of n-1 ranks, and in another order of the terms. So the best
// for it, and for sums over the ranks before, is that of slices. Recursive doubling takes log2(n) tensors.
void check_all(Communicator& comm, int64_t columns) {
  const char* const given = std::getenv("WEFT_LINK");
  Law law(comm, given ? parsed_link(given) : in_memory_of_a_node, columns);
  const int n = comm.size(), me = comm.rank().value;
  const GroupRank root{n - 1};
  const bool is_root = me == n - 1;
  constexpr int64_t tensor = 16 * 27;  // rows of a whole tensor, so that slices are about equal
  const double slices = tensor * (n - 1.0) / n;
  for (const Rows& rows : {case_rows::uneven_of(n), Rows(static_cast<size_t>(n), 2)}) {
    const int64_t mine = rows_of_rank(rows, me), all = total_rows(rows);
    law.check(AllGather{rows}, mine, static_cast<double>(all - mine));
    law.check(ReduceScatter{rows}, all, static_cast<double>((n - 1) * mine));
    law.check(Gather{root, rows}, mine, is_root ? static_cast<double>(all - mine) : 0);
    law.check(Scatter{root, rows}, all, is_root ? 0 : static_cast<double>(mine));
  }
  for (const Counts& counts :
       {case_rows::uneven_counts(n), Counts(static_cast<size_t>(n), Rows(static_cast<size_t>(n), 1))}) {
    int64_t others = 0;
    for (int r = 0; r < n; ++r) others += r == me ? 0 : rows_of_rank(counts[static_cast<size_t>(r)], me);
    law.check(AllToAll{counts}, total_rows(counts[static_cast<size_t>(me)]), static_cast<double>(others));
  }
  Sources next, last(static_cast<size_t>(n), n - 1);
  for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
  law.check(Permute{next}, tensor, tensor);
  law.check(Permute{next, true}, tensor, tensor);
  law.check(Permute{last}, tensor, is_root ? 0 : tensor);
  law.check(Broadcast{root}, tensor, is_root ? 0 : tensor);
  law.check(AllReduce{}, tensor, 2 * slices);
  law.check(AllReduce{ReduceOp::mean}, tensor, 2 * slices);
  law.check(AllReduce{ReduceOp::maximum}, tensor, 2 * slices);
  law.check(Reduce{root}, tensor, is_root ? 2 * slices : slices);
  law.check(Permute{last, true}, tensor, is_root ? 2 * slices : slices);
  law.check(Scan{}, tensor, 2 * slices);
  law.check(Exscan{}, tensor, me == 0 ? slices : 2 * slices);
  law.check(Scan{ReduceOp::sum, true}, tensor, 2 * slices);
  law.check(Exscan{ReduceOp::sum, true}, tensor, is_root ? slices : 2 * slices);
}

// Where messages are dear, as WEFT_LINK may say, sums take two for each doubling of the ranks, besides the comparison.
// They have the same bits.
void check_halves(Communicator& comm) {
  if (comm.choices().find("sums by recursive halving") == std::string::npos) return;
  const auto data = [](GroupRank rank) {
    return Tensor::uniform({16 * 27, 8}, {5, static_cast<uint64_t>(rank.value)});
  };
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::maximum}) {
    messages_received = 0;
    const std::vector<double> in_halves = comm.all_reduce(data(comm.rank()), op).values();
    const auto expected = 3 * std::bit_width(static_cast<unsigned>(comm.size() - 1));
    require(messages_received == expected, "a sum in halves took ", messages_received, " messages, not ", expected);
    run_ranks(comm.size(), [&](Communicator& threads) {
      require(threads.all_reduce(data(threads.rank()), op).values() == in_halves, "the ", op,
              " in halves has other bits than on threads");
    });
  }
  if (comm.rank().value == 0) std::printf("sums in halves\n");
}

// Messages that would be too long for MPI to count are cut, which shows at a length that takes less memory.
void check_long_messages(Communicator& comm) {
  constexpr int64_t size = (1 << 20) + 1000;
  const bool receives = comm.rank().value == 0;
  const auto data = [](uint64_t rank) { return Tensor::uniform({size / 4}, {3, rank}); };
  const Tensor expected = data(1), x = data(static_cast<uint64_t>(comm.rank().value));
  longest_sent = 0;
  Sources from_rank_1(static_cast<size_t>(comm.size()), -1);
  from_rank_1[0] = 1;
  const Tensor moved = comm.start(Permute{from_rank_1}, x).wait();
  require(!receives || moved.values() == expected.values(), "a long tensor has changed on its way");
  if (comm.rank().value == 1) comm.send(x, {0});
  if (receives)
    require(comm.receive(x.shape(), x.dtype(), x.device(), {1}).values() == expected.values(),
            "a long message has changed on its way");
  require(longest_sent <= static_cast<int64_t>(Wire::piece), "a message of ", longest_sent, " bytes");
}

int body(Session& session) {
  auto group = session.connect_hosts();
  checks::all_see_all(*group, 200'000, 1'000);  // in parts
  Communicator comm(std::move(group));
  for (const int64_t columns : {1, 50, 2'003}) check_all(comm, columns);
  check_halves(comm);
  if (comm.size() <= 3) check_long_messages(comm);
  if (comm.rank().value == 0) std::printf("every collective keeps the law on %s\n", comm.description().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_session(argc, argv, body); }
