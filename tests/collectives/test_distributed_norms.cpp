// SPDX-License-Identifier: Apache-2.0
// Batch normalization of a sharded batch against one process with the whole batch.
#include <numeric>

#include "tests/support/counted_transport.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

const Init init = {.key = {11}, .dtype = DType::f64};
constexpr Pass training = {.training = true};
constexpr int64_t width = 3;

// Images of two pixels around a given mean, with a number of rows for each rank, and a weight for every output element.
struct Batch {
  Rows rows;
  double mean;

  Tensor part(int r, int step = 0) const {
    return affine(data_of(r, {rows[static_cast<size_t>(r)], 2, width}, step), 1, mean).value();
  }
  Tensor weights(int r) const { return data_of(r, {rows[static_cast<size_t>(r)], 2, width}, 7); }
  template <class F> Var whole(F f) const {
    std::vector<Var> parts;
    for (int r = 0; r < static_cast<int>(rows.size()); ++r) parts.push_back(f(r));
    return concat(parts, 0);
  }
  Var mine(const Var& all, const Communicator& comm) const {
    const auto me = rows.begin() + number(comm);
    const int64_t before = std::accumulate(rows.begin(), me, int64_t{0});
    return slice(all, 0, before, before + *me);
  }
};

// Uneven with an empty rank; nearly all on one rank; all on the last rank.
std::vector<Rows> divisions(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  Rows uneven(n), one_each(n, 1), last(n, 0);
  for (size_t r = 0; r < n; ++r) uneven[r] = std::array{3, 0, 2, 1, 0}[r % 5];
  one_each[0] = 40;
  last.back() = 4;
  return {uneven, one_each, last};
}

// A loss plus a penalty on its gradient, so that second derivatives count too.
Var loss_of(const Var& x, const Var& y, const Var& weights) {
  const Var loss = sum(pow(y, 3) * weights);
  return loss + sum(square(x.tape()->gradient(loss, Var(scalar(1)), {x}, Graph::create)[0]) * weights);
}

}  // namespace

TEST_CASE("batch norm of a sharded bf16 batch has the f32 statistics of one process and exact counts") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    Rows rows(static_cast<size_t>(comm.size()), 0);
    rows[0] = 300;  // bf16 cannot represent this times two plus 2
    rows.back() += 1;
    const Batch batch{rows, 10};
    const Init narrow = {.key = {11}, .dtype = DType::bf16};
    DistributedBatchNorm norm("norm", width, narrow, comm);
    BatchNorm single("norm", width, narrow);
    const Var all = batch.whole([&](int r) { return Var(batch.part(r).to(DType::bf16)); });
    Tape tape;
    norm(tape.constant(batch.part(number(comm)).to(DType::bf16)), training);
    single(all, training);
    for (const auto average : {&BatchNorm::running_mean, &BatchNorm::running_variance}) {
      const std::vector<double> divided = (norm.*average).value.values(), whole = (single.*average).value.values();
      for (size_t i = 0; i < whole.size(); ++i)
        expect(std::abs(divided[i] - whole[i]) < 1e-6 * std::abs(whole[i]),
               text(divided[i]) + " is not " + text(whole[i]));
    }
  });
}

TEST_CASE("batch norm of a sharded batch equals one process, in values and first and second derivatives", "[r19]") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size()))
      for (const double mean : {0.0, 1e6}) {
        const Batch batch = {rows, mean};
        BatchNorm single("n", width, init);
        DistributedBatchNorm divided("n", width, init, comm);
        for (BatchNorm* norm : {&single, static_cast<BatchNorm*>(&divided)}) {
          norm->gamma.value = data_of(0, {width}, 8);
          norm->beta.value = data_of(0, {width}, 9);
        }
        for (int step = 0; step < 2; ++step) {
          Gradients whole, shared;
          Tape one, tape;
          const Var all = one.watch(batch.whole([&](int r) { return batch.part(r, step); }).value()),
                    mine = tape.watch(batch.part(number(comm), step));
          const Var expected = single(all, training), y = divided(mine, training);
          expect_close(y, batch.mine(expected, comm));
          expect(placement_of(y, comm) == Placement::varying, "the result is " + text(placement_of(y, comm)));

          const Var weights = one.constant(batch.whole([&](int r) { return batch.weights(r); }).value());
          const Var loss = loss_of(all, expected, weights);
          const Var share = loss_of(mine, y, tape.constant(batch.weights(number(comm))));
          expect_close(tape.gradient(share, Var(scalar(1)), {mine})[0], batch.mine(one.gradient(loss, {all})[0], comm));
          one.backward(loss, whole);
          tape.backward(share, shared);
          for (const auto p : {&BatchNorm::gamma, &BatchNorm::beta})
            expect_close(comm.all_reduce(shared[divided.*p]), whole[single.*p]);
        }
        for (const auto p : {&BatchNorm::running_mean, &BatchNorm::running_variance}) {
          expect_close((divided.*p).value, (single.*p).value);
          expect_same_bits((divided.*p).value, comm.broadcast((divided.*p).value, {0}));
        }
        expect_close(divided(batch.part(number(comm))), single(batch.part(number(comm))));
      }
  });
}

TEST_CASE("batch norm loses no digit if the mean is 1e8 standard deviations") {
  on_ranks([](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      const Batch batch = {rows, 0};
      // Multiples of 2^-24, so that shifting them is exact.
      const auto near_zero = [&](int r) { return data_of(r, batch.part(r).shape(), 0, DType::f32).to(DType::f64); };
      const auto far = [](const Tensor& x) { return affine(x, 1, 0x1p27).value(); };
      BatchNorm single("n", width, init, 1), moved("n", width, init, 1);
      DistributedBatchNorm divided("n", width, init, comm, 1);
      const Tensor whole = batch.whole(near_zero).value();
      const Var expected = single(whole, training);
      expect_close(moved(far(whole), training), expected);
      expect_close(divided(far(near_zero(number(comm))), training), batch.mine(expected, comm));
      expect_close(divided.running_variance.value, single.running_variance.value);
      expect_close(divided.running_mean.value, far(single.running_mean.value));
    }
  });
}

TEST_CASE("batch norm works per group, and ranks outside the group take no part") {
  run_ranks(6, [](Communicator& world) {
    const int me = number(world), color = me % 3 - 1;  // ranks 0 and 3 are in no group
    const auto group = world.split(color, -me);
    if (!group) return;
    const Tensor x = data_of(me, {2, width}), other = data_of((me + 3) % 6, {2, width});
    BatchNorm single("n", width, init);
    DistributedBatchNorm divided("n", width, init, *group);
    expect_close(divided(x, training), slice(single(concat({x, other}, 0), training), 0, 0, 2));
    expect_close(divided.running_mean.value, single.running_mean.value);
  });
}

TEST_CASE("batch norm of a sharded batch under a checkpoint updates its averages once, with the same gradient") {
  on_ranks([](Communicator& comm) {
    const Batch batch = {divisions(comm.size())[0], 0};
    DistributedBatchNorm plain("n", width, init, comm), again("n", width, init, comm);
    const auto gradient = [&](auto call) {
      Tape tape;
      const Var x = tape.watch(batch.part(number(comm)));
      return tape.gradient(call(x), Var(batch.weights(number(comm))), {x})[0].value();
    };
    const Tensor direct = gradient([&](const Var& x) { return plain(x, training); });
    const Tensor saved = gradient(
        [&](const Var& x) { return checkpoint([&](std::span<const Var> v) { return again(v[0], training); }, {x}); });
    expect_same_bits(saved, direct);
    expect_same_bits(again.running_mean.value, plain.running_mean.value);
    expect_same_bits(again.running_variance.value, plain.running_variance.value);
  });
}

TEST_CASE("batch norm of a sharded batch costs one collective forward, one backward and none in evaluation") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    DistributedBatchNorm norm("n", width, init, comm);
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {2, width}));
    norm(x);
    expect(collectives == 0, "evaluation meets");
    const Var y = norm(x, training);
    expect(collectives == 1, "forward has " + text(collectives) + " collectives");
    tape.gradient(y, x, {x});
    expect(collectives == 2, "backward has " + text(collectives - 1) + " collectives");
  });
}

TEST_CASE("batch norm refuses too few values in the global batch on every rank, but allows too few on one rank") {
  on_ranks([](Communicator& comm) {
    DistributedBatchNorm norm("n", width, init, comm);
    const auto rows = [&](int64_t first) { return data_of(0, {number(comm) == 0 ? first : 0, width}); };
    for (const int64_t first : {0, 1})
      expect_refusal([&] { norm(rows(first), training); }, {"BatchNorm: 'n.gamma' has", "training needs at least two"});
    norm(rows(2), training);
  });
}
