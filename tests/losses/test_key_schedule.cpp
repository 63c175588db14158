// SPDX-License-Identifier: Apache-2.0
// Key schedules bring the rows of all ranks to every rank, with the right indices and within the promised memory.
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/all_keys.h"

using namespace weft;

namespace test_key_schedule {

const KeySchedule every_way[] = {{KeySchedule::gather},      {KeySchedule::ring},       {KeySchedule::both_ways},
                                 {KeySchedule::per_rank},    {KeySchedule::chunked, 1}, {KeySchedule::chunked, 3},
                                 {KeySchedule::chunked, 100}};

// Some ranks have none.
int64_t rows_on(int rank) { return (rank + 2) % 4; }

std::vector<int64_t> owners_seen(KeySchedule schedule, Communicator& comm) {
  const Tensor own = data_of(number(comm), {1, 2});
  const auto look = [](const Block& block) { return block.rows; };
  std::vector<int64_t> owners;
  for (const BlockResult& seen :
       map_blocks(own, Rows(static_cast<size_t>(comm.size()), 1), schedule, comm, BlockFunction(look)))
    owners.push_back(seen.runs[0].first);
  return owners;
}

// The largest memory of all ranks together while blocks are visited, forward and backward, and after forward.
struct Held {
  int64_t most = 0, after_forward = 0;
};
Held held(KeySchedule schedule, int64_t rows, Communicator& comm) {
  Tape tape;
  const Var own = tape.watch(data_of(number(comm), {rows, 64}));
  comm.barrier();
  const int64_t before = pool::statistics().live_bytes;
  comm.barrier();
  Held held;
  const auto look = [&](const Block& block) {
    held.most = std::max(held.most, pool::statistics().live_bytes - before);
    return reshape(sum(square(block.rows)), {1});
  };
  Var loss;
  {
    const BlockResults seen =
        map_blocks(own, Rows(static_cast<size_t>(comm.size()), rows), schedule, comm, BlockFunction(look));
    loss = total(0, static_cast<int>(seen.size()), [&](int i) { return seen[static_cast<size_t>(i)].result; });
  }
  comm.barrier();
  held.after_forward = pool::statistics().live_bytes - before;
  comm.barrier();
  tape.gradient(loss, Var(Tensor::full({1}, 1, DType::f64)), {own});
  return held;
}

TEST_CASE("every key schedule visits each row of all ranks once, with its global index") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    const Division division(rows_on(number(comm)), comm);
    const Var own = data_of(number(comm), {division.mine(), 2});
    Vars all;
    for (int r = 0; r < comm.size(); ++r) all.push_back(data_of(r, {rows_on(r), 2}));
    const Tensor numbers = Tensor::arange(division.total);
    for (const KeySchedule& schedule : every_way) {
      const auto look = [&](const Block& block) {
        const Tensor places = places_in(block.runs, numbers);
        for (int64_t i = 0; i < numbers.size(); ++i)
          if (const int64_t place = places.data<int64_t>()[i]; place >= 0)
            expect_same_bits(block.rows.value().slice(place, place + 1), concat(all, 0).value().slice(i, i + 1));
        return block.rows;
      };
      expect_same_bits(in_order(map_blocks(own, division.rows, schedule, comm, BlockFunction(look))).value(),
                       concat(all, 0).value());
    }
  });
}

TEST_CASE("ring schedules visit a rank's own rows first, then those of neighbours on one or both sides") {
  on_ranks({1, 2, 3, 4, 5}, [](Communicator& comm) {
    const int n = comm.size(), me = number(comm);
    const std::vector<int64_t> ring = owners_seen({KeySchedule::ring}, comm),
                               both = owners_seen({KeySchedule::both_ways}, comm);
    expect(static_cast<int>(ring.size()) == n && static_cast<int>(both.size()) == n, "everybody is seen once");
    for (int i = 0; i < n; ++i) {
      const int hops = (i + 1) / 2;
      expect(ring[static_cast<size_t>(i)] == (me - i + n) % n, "the ring turns towards higher ranks");
      expect(both[static_cast<size_t>(i)] == (me + (i % 2 ? -hops : hops) + n) % n, "the nearest come first");
    }
  });
}

TEST_CASE("the per_rank and chunked schedules hold one block at a time, also in backward") {
  run_ranks(4, [](Communicator& comm) {
    constexpr int64_t rows = 1024, bytes = rows * 64 * 8, everybodys = 4 * bytes;  // per rank; of all ranks on one
    const Held gather = held({KeySchedule::gather}, rows, comm), per_rank = held({KeySchedule::per_rank}, rows, comm),
               chunked = held({KeySchedule::chunked, 128}, rows, comm);
    expect(gather.after_forward >= 4 * everybodys, "all rows are kept for backward");
    expect(per_rank.after_forward < everybodys / 4 && chunked.after_forward < everybodys / 4, "no rows are kept");
    // Each of four ranks holds a block or half of one, its square, and the gradients of its own rows.
    expect(per_rank.most <= 4 * 5 * bytes, "in turn: " + std::to_string(per_rank.most));
    expect(chunked.most <= 4 * 4 * bytes, "in chunks: " + std::to_string(chunked.most));
  });
}

TEST_CASE("places_in gives -1 for indices outside of all blocks") {
  const Tensor numbers = Tensor::from({2, 3}, {4, 9, 2, -1, 10, 3}, DType::i64);
  const Tensor places = places_in({{3, 2}, {9, 1}}, numbers);
  CHECK(places.values() == std::vector<double>{1, 2, -1, -1, -1, 0});
}

TEST_CASE("the chunked schedule refuses chunks of zero rows") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor own = data_of(0, {2, 2});
    expect_refusal(
        [&] {
          AllKeys(own, {2}, {KeySchedule::chunked, 0}, comm).log_sum_exp(own, scalar(1), {});
        },
        {"schedule: chunks of 0 rows"});
  });
}

TEST_CASE("with no keys on any rank the log-sum-exp is minus infinity, and the other sums are zero") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Var queries = tape.watch(data_of(number(comm), {number(comm) + 1, 3})), keys = data_of(0, {0, 3});
    const Rows none(static_cast<size_t>(comm.size()), 0);
    const Tensor least = Tensor::full({number(comm) + 1}, -INFINITY, DType::f64);
    const Tensor zeros = Tensor::zeros({number(comm) + 1}, DType::f64);
    for (const KeySchedule& schedule : every_way) {
      const AllKeys all(keys, none, schedule, comm);
      const AllKeys::LogSumExps both = all.log_sum_exp_both(queries, replicated_constant(scalar(2)), {});
      expect_same_bits(both.of_queries.value(), least);
      expect_same_bits(both.of_keys.value(), Tensor::zeros({0}, DType::f64));
      expect_same_bits(both.of_targets.value(), zeros);
      expect_same_bits(all.log_sum_exp(queries, replicated_constant(scalar(2)), {}).of_queries.value(), least);
      const Var shift = replicated_constant(scalar(1));
      expect_same_bits(all.softplus_sum(queries, replicated_constant(scalar(2)), shift, {}).value(), zeros);
    }
  });
}

}  // namespace test_key_schedule
