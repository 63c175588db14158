// SPDX-License-Identifier: Apache-2.0
// A memory bank is a queue of the latest keys, with the same bits on every rank and for every number of ranks.
#include "tests/support/on_ranks.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/info_nce.h"
#include "weft/losses/contrastive/memory_bank.h"
#include "weft/losses/contrastive/nt_xent.h"

using namespace weft;

namespace test_memory_bank {

constexpr Init init = {.key = {3}, .dtype = DType::f64};

// This rank's part of the keys of a step.
Tensor keys_of(int step) { return data_of(0, {4 + step % 3, 2}, step); }
Tensor part_of(const Tensor& all, Communicator& comm) {
  const int64_t count = all.shape()[0], n = comm.size(), me = number(comm);
  return all.slice(count * me * me / (n * n), count * (me + 1) * (me + 1) / (n * n));
}

// A plain queue, for comparison.
void push_one_by_one(Tensor& bank, int64_t& cursor, const Tensor& keys) {
  const Tensor normalized = l2_normalize(keys).value();
  for (int64_t i = 0; i < keys.shape()[0]; ++i) {
    bank.slice(cursor, cursor + 1).copy_from(normalized.slice(i, i + 1));
    cursor = (cursor + 1) % bank.shape()[0];
  }
}

TEST_CASE("a memory bank holds the latest keys of all ranks in order, with the same bits for any division") {
  for (const int64_t size : {1, 3, 7, 30}) {
    INFO("room for " << size);
    on_ranks({1, 2, 3, 4, 5}, [&](Communicator& comm) {
      MemoryBank bank("bank", size, 2, init);
      Tensor expected = bank.keys.value.clone();
      int64_t cursor = 0;
      for (int step = 0; step < 12; ++step) {
        push_one_by_one(expected, cursor, keys_of(step));
        bank.push(part_of(keys_of(step), comm), comm);
        expect_same_bits(bank.keys.value, expected);
        expect(static_cast<int64_t>(bank.cursor.value.item()) == cursor, "the next place");
      }
    });
  }
}

TEST_CASE("a memory bank is a buffer, not a parameter, and starts with unit vectors") {
  const MemoryBank bank("bank", 4, 3, init);
  CHECK(bank.parameters().empty());
  REQUIRE(bank.buffers().size() == 2);
  CHECK(bank.buffers()[0]->name == "bank.keys");
  CHECK(bank.buffers()[1]->name == "bank.cursor");
  for (const double length : norm(bank.keys.value, 1).value().values()) CHECK(std::abs(length - 1) < 1e-12);
}

TEST_CASE("a memory bank gets no gradient, and a tape that needs its keys detects a push") {
  on_ranks([](Communicator& comm) {
    MemoryBank bank("bank", 6, 2, init);
    const Tensor keys = data_of(number(comm), {2, 2}, 1);
    Tape tape;
    const Var queries = tape.watch(data_of(number(comm), {2, 2}));
    const Var loss = info_nce(queries, tape.constant(keys), {.negatives = bank.negatives(), .in_batch = false}, comm);
    expect(!bank.negatives().tracked(), "a bank is a constant");
    bank.push(keys, comm);
    expect_refusal([&] { tape.gradient(loss, {queries}); }, {"changed"});
  });
}

TEST_CASE("a memory bank that is pushed after each step trains alike on any number of ranks") {
  std::vector<double> expected;
  on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
    MemoryBank bank("bank", 5, 2, init);
    double sum_of_losses = 0;
    for (int step = 0; step < 4; ++step) {
      const Tensor queries = part_of(keys_of(step), comm), keys = part_of(keys_of(step + 20).slice(0, 4), comm);
      const Tensor mine = part_of(keys_of(step).slice(0, 4), comm);
      sum_of_losses += nt_xent(mine, keys, {.negatives = bank.negatives()}, comm).value().item();
      bank.push(keys, comm);
    }
    const double all = comm.all_reduce(scalar(sum_of_losses)).item();
    if (number(comm) == 0 && comm.size() == 1) expected = {all};
    expect(std::abs(all - expected[0]) < 1e-12, "the sum of the losses");
  });
}

TEST_CASE("a memory bank refuses keys that do not fit") {
  run_ranks(1, [](Communicator& comm) {
    MemoryBank bank("bank", 6, 2, init);
    expect_refusal(
        [&] {
          bank.push(data_of(0, {2, 3}), comm);
        },
        {"MemoryBank: 'bank.keys' is (6, 2), keys are (2, 3)"});
    expect_refusal([] { MemoryBank("empty", 0, 2, init); }, {"MemoryBank: 'empty' has room for 0 keys"});
  });
}

}  // namespace test_memory_bank
