// SPDX-License-Identifier: Apache-2.0
// Ranks as threads with a card each, as far as there are cards. They share only their process's memory: no rank's
// kernels can read another card's memory.
#include "tests/collectives/verbs_on_cards.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/on_cards.h"
#include "tests/support/on_ranks.h"

namespace weft {
namespace {

constexpr int group_sizes[] = {3, 4};  // with 3 cards, some of 4 ranks share one

TEST_CASE("verbs of threads on several cards have the host's bits") {
  if (!several_cards()) return;
  for (const int n : group_sizes)
    on_threads_with_cards(n, [](Communicator& comm) {
      reductions_have_the_hosts_bits(comm, 2001);
      moves_have_the_hosts_bits(comm, 100'000);
    });
}

TEST_CASE("collectives started by threads on several cards can finish in any order, also in subgroups") {
  if (!several_cards()) return;
  on_threads_with_cards(4, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {1000}), y = data_of(number(comm), {comm.size(), 77});
    const auto part = comm.split(number(comm) % 2, -number(comm));
    Pending gathered = comm.start(AllGather{}, x.to(Device::cuda)), sum = comm.start(AllReduce{}, y.to(Device::cuda)),
            scattered = part->start(ReduceScatter{}, y.to(Device::cuda));
    { const Pending dropped = comm.start(AllReduce{}, x.to(Device::cuda)); }
    same_on_card(*part, "all_reduce", x, [](auto& c, auto& t) { return c.all_reduce(t); });
    expect_same_bits(scattered.wait().to(Device::cpu), part->reduce_scatter(y));
    expect_same_bits(sum.wait().to(Device::cpu), comm.all_reduce(y));
    expect_same_bits(gathered.wait().to(Device::cpu), comm.all_gather(x));
  });
}

// Gradients use the same verbs.
TEST_CASE("every distributed case matches its specification on several cards") {
  if (!several_cards()) return;
  for (const DistributedCase* c : DistributedCase::all())
    for (const int n : {2, 3}) {
      INFO(c->name);
      on_threads_with_cards(n, [&](Communicator& comm) { check_specification(*c, comm, Device::cuda); });
    }
}

}  // namespace
}  // namespace weft
