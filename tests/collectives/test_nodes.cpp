// SPDX-License-Identifier: Apache-2.0
// Groups on several nodes: results and bits as on one node, wherever ranks are, and the bytes that come to a node.
#include <algorithm>
#include <random>
#include <span>
#include <thread>

#include "tests/cases/collectives/case_rows.h"
#include "tests/collectives/transport_checks.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/on_nodes.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/fold.h"
#include "weft/collectives/transports/nodes/node_steps.h"
#include "weft/collectives/transports/sent_messages.h"

using namespace weft;

namespace {

const std::vector<std::vector<int>> placements = {{0, 0},          {0, 1},
                                                  {0, 0, 1},       {0, 1, 1},
                                                  {0, 1, 0, 1, 0}, {0, 0, 0, 1, 1, 1, 2, 2},
                                                  {2, 2, 0, 1, 0}, {0, 0, 0, 0, 1, 1, 1, 1}};
// Uneven nodes; ranks that are not next to each other; subtrees that are on two nodes.
const std::vector<std::vector<int>> few_placements = {{0, 0, 1}, {0, 1, 0, 1, 0}, {0, 0, 0, 1, 1, 1, 2, 2}};

// The results of all sums, which are folded, and of moving data, one behind the other.
std::vector<Tensor> results_of_everything(Communicator& comm, DType dtype, int64_t columns) {
  const int n = comm.size(), me = number(comm);
  const GroupRank root{n - 1};
  const Rows uneven = case_rows::uneven_of(n);
  const Counts counts = case_rows::uneven_counts(n);
  const auto data = [&](int64_t rows) { return data_of(me, {rows, columns}, 5).to(dtype); };
  const Tensor whole = data(17), mine = data(rows_of_rank(uneven, me)), of_all = data(total_rows(uneven));
  Sources next, last(static_cast<size_t>(n), n - 1);
  for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
  std::vector<Tensor> results;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::maximum}) {
    results.push_back(comm.all_reduce(whole, op));
    results.push_back(comm.reduce_scatter_v(of_all, uneven, op));
    results.push_back(comm.reduce(whole, root, op));
    results.push_back(comm.scan(whole, op));
    results.push_back(comm.exscan(whole, op));
  }
  results.push_back(comm.run(Scan{ReduceOp::sum, true}, whole));
  results.push_back(comm.all_gather_v(mine, uneven));
  results.push_back(comm.gather_v(mine, uneven, root));
  results.push_back(comm.scatter_v(of_all, uneven, root));
  results.push_back(comm.broadcast(whole, root));
  results.push_back(comm.all_to_all_v(data(total_rows(counts[static_cast<size_t>(me)])), counts));
  for (const Sources& source : {next, last})
    for (const bool back : {false, true}) results.push_back(comm.run(Permute{source, back}, whole));
  return results;
}

// The same in two halves. All are started before any is finished, and they are finished in an order of each rank's own.
std::vector<Tensor> results_of_halves(Communicator& comm, DType dtype, int64_t columns) {
  const int n = comm.size(), me = number(comm);
  const GroupRank root{n - 1};
  const Rows uneven = case_rows::uneven_of(n);
  const Counts counts = case_rows::uneven_counts(n);
  const auto data = [&](int64_t rows) { return data_of(me, {rows, columns}, 5).to(dtype); };
  Sources next;
  for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
  std::vector<Pending> halves;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::maximum}) {
    halves.push_back(comm.start(AllReduce{op}, data(17)));
    halves.push_back(comm.start(ReduceScatter{uneven, op}, data(total_rows(uneven))));
    halves.push_back(comm.start(Reduce{root, op}, data(17)));
  }
  halves.push_back(comm.start(Scan{}, data(17)));
  halves.push_back(comm.start(AllGather{uneven}, data(rows_of_rank(uneven, me))));
  halves.push_back(comm.start(Gather{root, uneven}, data(rows_of_rank(uneven, me))));
  halves.push_back(comm.start(Scatter{root, uneven}, data(total_rows(uneven))));
  halves.push_back(comm.start(Broadcast{root}, data(17)));
  halves.push_back(comm.start(AllToAll{counts}, data(total_rows(counts[static_cast<size_t>(me)]))));
  halves.push_back(comm.start(Permute{next}, data(17)));
  std::vector<Tensor> results(halves.size());
  for (size_t i = 0; i < halves.size(); ++i) {
    const size_t which = me % 3 == 0 ? i : me % 3 == 1 ? halves.size() - 1 - i : (7 * i + 3) % halves.size();
    results[which] = halves[which].wait();
  }
  return results;
}

}  // namespace

TEST_CASE("every collective has the bits of one node, wherever ranks are") {
  const auto results = GENERATE(results_of_everything, results_of_halves);
  for (const std::vector<int>& node_of : placements)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const int64_t columns : {1, 50, 2'003}) {
        std::vector<std::vector<Tensor>> expected(node_of.size());
        run_ranks(static_cast<int>(node_of.size()), [&](Communicator& comm) {
          expected[static_cast<size_t>(number(comm))] = results(comm, dtype, columns);
        });
        CHECK_NOTHROW(on_nodes(node_of, [&](std::unique_ptr<Transport> group, Received&) {
          Communicator comm(std::move(group));
          const std::vector<Tensor>& mine = expected[static_cast<size_t>(number(comm))];
          const std::vector<Tensor> found = results(comm, dtype, columns);
          for (size_t i = 0; i < mine.size(); ++i) {
            require(found[i].shape() == mine[i].shape() && found[i].values() == mine[i].values(), "result ", i, " of ",
                    dtype, " in ", columns, " columns on ", node_of.size(), " ranks");
          }
        }));
      }
}

TEST_CASE("calls in two halves on nodes may take any time between their steps") {
  for (const std::vector<int>& node_of : few_placements)
    CHECK_NOTHROW(on_nodes(node_of, [](std::unique_ptr<Transport> group, Received&) {
      Communicator comm(std::move(group));
      std::mt19937 random(static_cast<unsigned>(number(comm)));
      std::vector<Pending> halves;
      constexpr int calls = 60;
      for (int i = 0; i < calls; ++i) {  // sums that take two swaps between the leaders, and one
        halves.push_back(comm.start(AllReduce{}, Tensor::full({i % 2 ? 1 : 3'000}, i)));
        if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        for (unsigned asked = random() % 4; asked > 0; --asked) halves[random() % halves.size()].ready();
      }
      for (int i = 0; i < calls; ++i)
        require(halves[static_cast<size_t>(i)].wait().values()[0] == i * comm.size(), "sum ", i);
    }));
}

TEST_CASE("every distributed case passes on nodes, and in groups of ranks on them") {
  for (const std::vector<int>& node_of : few_placements)
    CHECK_NOTHROW(on_nodes(node_of, [](std::unique_ptr<Transport> group, Received&) {
      Communicator world(std::move(group));
      const auto half = world.split(number(world) % 2, -number(world));
      for (const DistributedCase* c : DistributedCase::all()) {
        check_specification(*c, world);
        check_gradients(*c, *half);
      }
    }));
}

TEST_CASE("a group on nodes has what a transport promises") {
  for (const std::vector<int>& node_of : std::span(few_placements).first(2))
    CHECK_NOTHROW(on_nodes(node_of, [](std::unique_ptr<Transport> group, Received&) {
      checks::everything_works(*group);
      checks::groups_come_and_go(*group, 20);
    }));
}

TEST_CASE("what arrives at a node in parts lies side by side on its board") {
  std::vector<std::byte> theirs(32), board(24), expected(24);
  for (size_t i = 0; i < theirs.size(); ++i) theirs[i] = static_cast<std::byte>(i + 1);
  std::copy(theirs.begin() + 8, theirs.begin() + 26, expected.begin() + 4);
  const NodeSteps::Swap swap{.arrivals = {{1, {8, 26}, 4}}};
  for (size_t first = 0; first < 32; first += 16) {
    const std::byte* const peers[] = {nullptr, theirs.data() + first};
    swap.put({first, first + 16, peers}, board.data());
  }
  CHECK(board == expected);
}

// What the steps of all nodes send to the leader `me` in a collective on tensors like x.
template <LinearCollective C>
size_t bytes_scheduled_for(int me, const C& collective, int ranks, int ranks_per_node, const Tensor& x) {
  const size_t unit = C::by_rows ? x.bytes() / static_cast<size_t>(x.shape()[0]) : x.bytes();
  const auto reads = [&](int reader, int source) {
    const auto [from, count, to] = collective.portion(reader, source);
    return ByteRange{static_cast<size_t>(from) * unit, static_cast<size_t>(from + count) * unit};
  };
  const auto reads_any = [&](int reader, int source) { return reads(reader, source).size() > 0; };
  std::vector<ByteRange> slices;
  for (int r = 0; r < ranks && Slicing<C>; ++r) slices.push_back(reads(r, 0));
  const Fold fold{{}, ReduceOp::sum, x.dtype(), Device::cpu, true, FoldOrder::of(collective.verb(), 0)};
  const Transport::Reduction reduction{{reads_any, slices, collective.verb() == Verb::all_reduce}, fold};
  size_t bytes = 0;
  for (const SentStep& step :
       messages_of_leaders(ranks, ranks_per_node, x.bytes(), adds(collective, ranks) ? &reduction : nullptr, reads))
    for (const SentStep::Message& message : step.messages) bytes += message.to == me ? message.bytes : 0;
  return bytes;
}

// In rows that a node receives. Data come to a node once, and a sum for it as one term from each other node.
TEST_CASE("a node receives what the best algorithm for nodes does") {
  const int nodes = GENERATE(2, 3, 4, 8), each = GENERATE(1, 2, 4);
  const bool in_halves = GENERATE(false, true);
  const int n = nodes * each;
  std::vector<int> node_of;
  for (int r = 0; r < n; ++r) node_of.push_back(r / each);
  CHECK_NOTHROW(on_nodes(node_of, [&](std::unique_ptr<Transport> group, Received& received) {
    Communicator comm(std::move(group));
    const int me = number(comm), node = me / each;
    const bool at_root = node == nodes - 1;
    const GroupRank root{n - 1};
    constexpr int64_t columns = 503;
    const auto law = [&](const auto& verb, int64_t rows, double best) {
      const Tensor x = Tensor::uniform({rows, columns}, {1, static_cast<uint64_t>(me)});
      received = {};
      if (in_halves)
        comm.start(verb, x).wait();
      else
        comm.run(verb, x);
      require(received.bytes == 0 || me % each == 0, "only the leader of a node receives");
      const size_t scheduled = me % each == 0 ? bytes_scheduled_for(me, verb, n, each, x) : 0;
      require(received.bytes == scheduled, name(verb.verb()), " brings ", received.bytes, " bytes to rank ", me,
              ", its schedule says ", scheduled);
      const double bytes = static_cast<double>(received.bytes);
      require(bytes <= 1.05 * best * columns * 4 + 256 * static_cast<double>(received.messages), name(verb.verb()),
              " brings ", bytes / columns / 4, " rows to a node, the best algorithm ", best);
      require(bytes >= 0.95 * best * columns * 4 || me % each != 0, name(verb.verb()), " brings only ",
              bytes / columns / 4, " rows of ", best);
    };
    const Rows rows(static_cast<size_t>(n), 2);
    const double own = 2 * each, others = 2 * (n - each), tensor = 16 * 24;
    law(AllGather{rows}, 2, others);
    law(ReduceScatter{rows}, 2 * n, (nodes - 1) * own);
    law(Gather{root, rows}, 2, at_root ? others : 0);
    law(Scatter{root, rows}, 2 * n, at_root ? 0 : own);
    law(AllToAll{Counts(static_cast<size_t>(n), Rows(static_cast<size_t>(n), 1))}, n, each * (n - each));
    Sources next, last(static_cast<size_t>(n), n - 1);
    for (int r = 0; r < n; ++r) next.push_back((r + 1) % n);
    const double slices = tensor * (nodes - 1) / nodes;
    law(Permute{next}, tensor, tensor);
    law(Permute{next, true}, tensor, tensor);
    law(Permute{last}, tensor, at_root ? 0 : tensor);
    law(Permute{last, true}, tensor, at_root ? 2 * slices : slices);
    law(Broadcast{root}, tensor, at_root ? 0 : tensor);
    law(AllReduce{}, tensor, 2 * slices);
    law(Reduce{root}, tensor, at_root ? 2 * slices : slices);
    // A scan brings a node its slice of the sums of all other nodes that have nodes after them, and the sum of the
    // nodes before it. A scan of the ranks after is the same from the other end.
    for (const bool reverse : {false, true}) {
      const int before = reverse ? nodes - 1 - node : node;
      const double sums = tensor * (before == nodes - 1 ? nodes - 1 : nodes - 2) / nodes;
      const double whole = nodes * each == 2 ? before * tensor : sums + (before > 0 ? slices : 0);
      law(Scan{ReduceOp::sum, reverse}, tensor, whole);
      law(Exscan{ReduceOp::sum, reverse}, tensor, whole);
    }
  }));
}
