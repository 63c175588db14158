// SPDX-License-Identifier: Apache-2.0
// Checks of all distributed cases, that is of every collective and of all else that spans ranks and has a
// specification. tests/mpi/collectives.cpp makes the same checks under mpiexec.
#include "tests/kernels/cuda_checks.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {
constexpr int group_sizes[] = {1, 2, 3, 4, 5, 8};
}

TEST_CASE("every distributed case matches its specification on any number of ranks") {
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : group_sizes) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_specification(*c, comm); }));
    }
}

TEST_CASE("every distributed case has exact first and second derivatives on any number of ranks") {
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : group_sizes) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_gradients(*c, comm); }));
    }
}

TEST_CASE("every distributed case passes on one card that all ranks share") {
  SKIP_WITHOUT_A_CARD();
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : {1, 3}) {
      INFO(c->name << " on " << n << " ranks");
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) {
        check_specification(*c, comm, Device::cuda);
        check_gradients(*c, comm, Device::cuda);
      }));
    }
}

TEST_CASE("every distributed case passes in subgroups whose rank order differs from the world's") {
  for (const DistributedCase* c : DistributedCase::all()) {
    INFO(c->name);
    CHECK_NOTHROW(run_ranks(5, [&](Communicator& world) {
      const int r = world.rank().value;
      const auto group = world.split(r % 2 == 0 ? 0 : 1, -r);  // ranks 4 2 0, and 3 1
      require(group->global(group->rank()).value == r, "a rank's global number is lost in a split");
      check_specification(*c, *group);
      check_gradients(*c, *group);
    }));
  }
}

TEST_CASE("gather and scatter of vectors return every gradient, and refuse scalars and indivisible lengths") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const int n = comm.size(), me = number(comm);
    const GroupRank root{n - 1};
    const Var mine = tape.watch(data_of(me, {2})), all = tape.watch(data_of(me, {2 * n}));
    const Tensor weights = data_of(n, {2 * n});  // of the root's gathered elements and of the scattered ones
    const Var gathered = gather(mine, root, comm), scattered = scatter(all, root, comm);
    const Var of_gathered = comm.rank() == root ? sum(gathered * tape.constant(weights)) : sum(gathered);
    const Var of_scattered = sum(scattered * tape.constant(weights.slice(2 * me, 2 * me + 2)));
    expect_same_bits(tape.gradient(of_gathered, {mine})[0].value(), weights.slice(2 * me, 2 * me + 2));
    expect_same_bits(tape.gradient(of_scattered, {all})[0].value(),
                     comm.rank() == root ? weights : Tensor::zeros({2 * n}, DType::f64));

    const Var one = tape.watch(scalar(1)), odd = tape.watch(data_of(me, {2 * n + 1, 2}));
    expect_refusal([&] { gather(one, root, comm); }, {"gather: a scalar has no axis 0; reshape it to (1)"});
    expect_refusal([&] { scatter(one, root, comm); }, {"scatter: a scalar has no axis 0; reshape it to (1)"});
    if (n > 1) expect_refusal([&] { scatter(odd, root, comm); }, {"scatter: axis 0 of (", "use scatter_v"});
  });
}

TEST_CASE("a rank that is not in the group is refused, as a root, a source and the other end of a message") {
  on_ranks([](Communicator& comm) {
    const Tensor x = data_of(number(comm), {comm.size()});
    for (const GroupRank absent : {GroupRank{-1}, GroupRank{comm.size()}}) {
      const std::string said = "there is no rank " + text(absent) + " in a group of " + text(comm.size()) + " ranks";
      const auto refused = [&](const char* verb, const auto& call) { expect_refusal(call, {verb, said.c_str()}); };
      refused("broadcast: ", [&] { comm.broadcast(x, absent); });
      refused("reduce: ", [&] { comm.reduce(x, absent); });
      refused("gather: ", [&] { comm.gather(x, absent); });
      refused("scatter: ", [&] { comm.scatter(x, absent); });
      refused("send: ", [&] { comm.send(x, absent); });
      refused("receive: ", [&] { comm.receive(x.shape(), x.dtype(), x.device(), absent); });
    }
    for (const int64_t source : {-2, comm.size()}) {  // -1 is none
      const std::string said = "permute: source " + text(source) + " in a group of " + text(comm.size()) + " ranks";
      expect_refusal([&] { comm.permute(x, Sources(static_cast<size_t>(comm.size()), source)); }, {said.c_str()});
    }
  });
}
