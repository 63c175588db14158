// SPDX-License-Identifier: Apache-2.0
// Collectives on transports that threads do not show: one that brings what is shown in parts, as messages do, and one
// that has reductions of its own, as MPI has.
#include "tests/support/distributed_checks.h"
#include "tests/support/forwarding_transport.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/run_ranks.h"

using namespace weft;

namespace {

// Every part is a copy with NaN behind it, so what is read in another place shows.
class PartedTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void expose(const Call& call, Bytes mine, size_t longest, Read read) override {
    const std::vector<size_t> sizes = everyones(mine.size());
    ForwardingTransport::expose(call, mine, longest, [&](const Part& whole) {
      for (size_t first = whole.first; first < whole.last; first += step)
        show({first, std::min(first + step, whole.last), whole.peers}, first - whole.first, sizes, longest, read);
    });
  }

 private:
  static constexpr size_t step = 16;  // bytes: two elements of the cases

  std::vector<size_t> everyones(size_t mine) {
    std::vector<size_t> sizes;
    ForwardingTransport::expose(describe(Verb::barrier, Site::here()), std::as_bytes(std::span(&mine, 1)), sizeof mine,
                                [&](const Part& part) {
                                  sizes.resize(part.peers.size());
                                  for (size_t r = 0; r < sizes.size(); ++r)
                                    std::memcpy(&sizes[r], part.peers[r], sizeof mine);
                                });
    return sizes;
  }

  // `at` is where the part begins in what the peers' addresses show.
  static void show(const Part& part, size_t at, const std::vector<size_t>& sizes, size_t longest, Read read) {
    std::vector<std::vector<std::byte>> copies;
    std::vector<const std::byte*> peers;
    for (size_t r = 0; r < sizes.size(); ++r) {
      auto& copy = copies.emplace_back(longest + step, std::byte{0xff});
      for (size_t i = part.first; i < std::min(part.last, sizes[r]); ++i)
        copy[i - part.first] = part.peers[r][at + i - part.first];
      peers.push_back(copy.data());
    }
    read({part.first, part.last, peers});
  }
};

// Adds from the last rank down, and leaves a mean as the sum, as MPI does.
class ReducingTransport final : public ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  bool combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) override {
    std::vector<double> sums(mine.size() / sizeof(double));
    ForwardingTransport::expose(call, mine, mine.size(), [&](const Part& part) {
      for (size_t r = part.peers.size(); r-- > 0;)
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += reinterpret_cast<const double*>(part.peers[r])[i];
    });
    std::memcpy(result.data(), sums.data(), result.size());
    return true;
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

TEST_CASE("every distributed case does what its specification says where what is shown comes in parts") {
  on_ranks_with<PartedTransport>(Reductions::ordered, [](Communicator& comm) {
    for (const DistributedCase* c : DistributedCase::all()) check_specification(*c, comm);
  });
}

TEST_CASE("a mean by a transport's own reductions is the mean, a sum the sum") {
  on_ranks_with<ReducingTransport>(Reductions::fast, [](Communicator& comm) {
    const Tensor mine = data_of(number(comm), {7});
    Tensor sum = data_of(0, {7});
    for (int r = 1; r < comm.size(); ++r) sum = (sum + data_of(r, {7})).value();
    expect_close(comm.all_reduce(mine), sum);
    expect_close(comm.all_reduce(mine, ReduceOp::mean), sum / comm.size());
  });
}
