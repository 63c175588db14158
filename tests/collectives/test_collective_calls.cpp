// SPDX-License-Identifier: Apache-2.0
// Collectives on transports unlike threads: one that reads in parts, as messages do, and one with reductions of its
// own, as MPI has.
#include "tests/support/distributed_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/fold.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;

namespace {

// Reads in pieces, each into a copy with NaN behind it, so that reading elsewhere shows. A rank that shows only some
// ranges gives access to these alone.
class PartedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    std::vector<Range> pieces(ranges.of_peers.begin(), ranges.of_peers.end());
    if (pieces.empty()) pieces = everything(mine.size());
    size_t end = 0;
    for (const Range& range : pieces) end = std::max(end, range.size());
    ForwardingTransport::exchange(call, mine, longest, {}, [&](const Part& whole) {
      require(whole.first == 0 && whole.last == longest, "threads bring one part");
      for (size_t at = 0; at < end; at += step) {
        const Shown shown(whole, pieces, at, std::min(step, end - at));
        if (ranges.of_peers.empty())
          read({at, at + shown.length, shown.peers});
        else
          read({0, shown.length, shown.peers, shown.begins});
      }
    });
  }

 private:
  static constexpr size_t step = 16;  // bytes: two elements

  std::vector<Range> everything(size_t mine) {
    std::vector<Range> all;
    const auto read = [&](const Part& part) {
      for (const std::byte* peer : part.peers) std::memcpy(&all.emplace_back().last, peer, sizeof mine);
    };
    const auto bytes = std::as_bytes(std::span(&mine, 1));
    ForwardingTransport::exchange(describe(Verb::barrier, Site::here()), bytes, bytes.size(), {}, read);
    return all;
  }

  struct Shown {
    size_t length;
    std::vector<std::vector<std::byte>> copies;
    std::vector<const std::byte*> peers;
    std::vector<size_t> begins;

    Shown(const Part& whole, const std::vector<Range>& ranges, size_t at, size_t length) : length(length) {
      for (size_t r = 0; r < ranges.size(); ++r) {
        const Range piece = ranges[r].piece(at, length);
        auto& copy = copies.emplace_back(length + step, std::byte{0xff});
        std::copy(whole.peers[r] + piece.first, whole.peers[r] + piece.last, copy.begin());
        peers.push_back(copy.data());
        begins.push_back(piece.first);
      }
    }
  };
};

// Notes where the bytes are that this rank exposes.
class WatchingTransport final : public ForwardingTransport {
 public:
  WatchingTransport(std::unique_ptr<Transport> inner, bool shows)
      : ForwardingTransport(std::move(inner)), shows_(shows) {}

  bool shows_device_memory() const override { return shows_; }
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    exposed = mine.data();
    ForwardingTransport::exchange(call, mine, longest, ranges, read);
  }
  const std::byte* exposed = nullptr;

 private:
  const bool shows_;
};

// Adds from the last rank down where the order is free.
class ReducingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override {
    if (!reduction.in_any_order) return Transport::reduce(call, mine, result, reduction);
    std::vector<double> sums(mine.size() / sizeof(double));
    ForwardingTransport::expose(call, mine, mine.size(), [&](const Part& part) {
      for (size_t r = part.peers.size(); r-- > 0;)
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += reinterpret_cast<const double*>(part.peers[r])[i];
    });
    const size_t share = call.verb == Verb::all_reduce ? 0 : static_cast<size_t>(rank()) * result.size();
    std::memcpy(result.data(), reinterpret_cast<const std::byte*>(sums.data()) + share, result.size());
    reduction.fold.divide(result.data(), static_cast<int64_t>(result.size() / sizeof(double)));
  }
};

template <class Transport> void on_ranks_with(Reductions reductions, const std::function<void(Communicator&)>& body) {
  for (const int n : {1, 2, 3, 5}) {
    INFO(n << " ranks");
    CHECK_NOTHROW(run_ranks(n, [&](std::unique_ptr<weft::Transport> transport) {
      Communicator comm(std::make_unique<Transport>(std::move(transport)), reductions);
      body(comm);
    }));
  }
}

}  // namespace

TEST_CASE("every distributed case matches its specification on a transport that reads in pieces") {
  on_ranks_with<PartedTransport>(Reductions::ordered, [](Communicator& comm) {
    for (const DistributedCase* c : DistributedCase::all()) check_specification(*c, comm);
  });
}

TEST_CASE("sum and mean by a transport's own reduction are correct, and so are shares of them") {
  on_ranks_with<ReducingTransport>(Reductions::fast, [](Communicator& comm) {
    const Shape shape{7 * comm.size()};
    Tensor sum = data_of(0, shape);
    for (int r = 1; r < comm.size(); ++r) sum = (sum + data_of(r, shape)).value();
    const Tensor mine = data_of(number(comm), shape), mean = (sum / comm.size()).value();
    const auto rows = [&](const Tensor& all, int64_t first, int64_t count) { return all.slice(first, first + count); };
    const int64_t first = 7 * number(comm);
    expect_close(comm.all_reduce(mine), sum);
    expect_close(comm.all_reduce(mine, ReduceOp::mean), mean);
    expect_close(comm.reduce_scatter(mine), rows(sum, first, 7));
    expect_close(comm.reduce_scatter(mine, ReduceOp::mean), rows(mean, first, 7));
    Rows uneven(static_cast<size_t>(comm.size()), 7);  // the last rank has four rows more than the first
    uneven.front() -= comm.size() > 1 ? 2 : 0;
    uneven.back() += comm.size() > 1 ? 2 : 0;
    expect_close(comm.reduce_scatter_v(mine, uneven),
                 rows(sum, rows_before(uneven, number(comm)), rows_of_rank(uneven, number(comm))));
  });
}

TEST_CASE("a rank exposes its tensor itself, or a copy on the host if the transport shows no other") {
  const Device device = GENERATE(filter(available, values({Device::cpu, Device::cuda})));
  for (const bool shows : {true, false})
    CHECK_NOTHROW(run_ranks(2, [&](std::unique_ptr<Transport> threads) {
      auto watching = std::make_unique<WatchingTransport>(std::move(threads), shows);
      const WatchingTransport& transport = *watching;
      Communicator comm(std::move(watching));
      const Tensor x = data_of(number(comm), {5}).to(device), all = comm.all_gather(x);
      expect((transport.exposed == x.data<std::byte>()) == (shows || device == Device::cpu), "what is exposed");
      expect_same_bits(all.to(Device::cpu).slice(5, 10), data_of(1, {5}));
    }));
}

TEST_CASE("reductions in a fixed order leave a transport's own alone") {
  on_ranks_with<ReducingTransport>(Reductions::ordered, [](Communicator& comm) {
    const Random random{17, static_cast<uint64_t>(number(comm))};
    const Tensor mine = Tensor::normal({100 * comm.size()}, random, 0, 1, DType::f64), sum = comm.all_reduce(mine);
    expect_same_bits(comm.reduce_scatter(mine), sum.slice(100 * number(comm), 100 * number(comm) + 100));
  });
}

TEST_CASE("a rank that is alone gets its own memory back on a tape, and from a plain collective never") {
  const Device device = GENERATE(filter(available, values({Device::cpu, Device::cuda})));
  const auto expect_on_one_rank = [&](int ranks, Communicator& comm) {
    const Tensor x = data_of(number(comm), {6 * comm.size()}).to(device);
    Tape tape;
    const Var v = tape.watch(x);
    const auto expect_input = [&](const Var& y, bool is_input) {
      expect(y.value().shares_memory_with(x) == (is_input && ranks == 1), "whether the result shares memory");
    };
    expect_input(all_gather(v, comm), true);
    expect_input(reduce_scatter(v, comm), true);
    expect_input(all_reduce(v, comm), true);
    expect_input(broadcast(v, {0}, comm), true);
    expect_input(permute(v, Sources(static_cast<size_t>(ranks), -1), comm), false);  // zeros
    expect_input(exscan(v, comm), false);
    for (const Tensor& y : {comm.all_gather(x), comm.all_reduce(x), comm.reduce_scatter(x), comm.broadcast(x, {0})})
      expect(!y.shares_memory_with(x), "a plain result may be written to");
  };
  for (const int ranks : {1, 2})
    CHECK_NOTHROW(run_ranks(ranks, [&](Communicator& comm) { expect_on_one_rank(ranks, comm); }));
}
