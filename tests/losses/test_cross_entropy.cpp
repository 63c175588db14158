// SPDX-License-Identifier: Apache-2.0
// Cross entropy over ranks: ignored samples and mistakes. Values and gradients are checked among the loss cases.
#include "tests/support/uneven_rows.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/metrics/cross_entropy.h"

using namespace weft;

namespace test_cross_entropy {

struct Graded {
  double loss;  // of all ranks
  Tensor gradient;
};
Graded graded(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options, Communicator& comm) {
  Tape tape;
  const Var x = tape.watch(logits), share = cross_entropy(x, constant_like(targets, x), options, comm);
  return {sum_over_ranks(share.value().item(), comm), tape.gradient(share, {x})[0].value()};
}

Tensor targets(int64_t count, int64_t value) { return Tensor::full({count}, static_cast<double>(value), DType::i64); }

TEST_CASE("cross entropy of a batch or a rank without counted samples has zero loss and gradient") {
  const Var weights = replicated_constant(row_of({1, 2, 0}));
  for (const double smoothing : {0.0, 0.1})
    on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
      const int64_t mine = rows_on(number(comm));
      const Tensor x = part(number(comm), {3});
      const auto zero = [&](const CrossEntropyOptions& options, int64_t target) {
        const Graded found = graded(x, targets(mine, target), options, comm);
        expect(found.loss == 0, text(found.loss));
        for (const double g : found.gradient.values()) expect(g == 0, text(found.gradient));
      };
      zero({.label_smoothing = smoothing}, -100);
      zero({.ignore_index = 1, .label_smoothing = smoothing}, 1);
      zero({.ignore_index = 7, .label_smoothing = smoothing}, 7);
      if (smoothing == 0) zero({.weights = weights}, 2);  // a class of weight zero

      // Only the last rank has samples that count.
      const bool counts = number(comm) == comm.size() - 1 && mine > 0;
      const Graded some = graded(x, targets(mine, counts ? 0 : -100), {.label_smoothing = smoothing}, comm);
      if (!counts)
        for (const double g : some.gradient.values()) expect(g == 0, text(some.gradient));
      const double all = comm.all_reduce(scalar(counts)).item();
      expect((some.loss > 0) == (all > 0), text(some.loss));
    });
}

TEST_CASE("cross entropy ignores the logits of ignored samples, even NaN") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor x = part(number(comm), {3});
    Tensor broken = concat({Var(x), Var(Tensor::full({1, 3}, NAN, DType::f64))}, 0).value();
    const int64_t mine = x.shape()[0];
    Tensor given = targets(mine + 1, 1);
    given.mutate<int64_t>()[mine] = -100;
    const double usual = sum_over_ranks(cross_entropy(x, targets(mine, 1), {}, comm).value().item(), comm);
    expect(sum_over_ranks(cross_entropy(broken, given, {}, comm).value().item(), comm) == usual, "the same loss");
  });
}

TEST_CASE("cross entropy of bf16 logits equals that in f32, and accepts integer targets of any shape") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor narrow = data_of(number(comm), {2, 3, 4}, 1, DType::bf16), wide = narrow.to(DType::f32);
    Tensor given({2, 3}, DType::i64);
    for (int64_t i = 0; i < 6; ++i) given.mutate<int64_t>()[i] = i % 4;
    const Graded n = graded(narrow, given, {.label_smoothing = 0.1}, comm),
                 w = graded(wide, given, {.label_smoothing = 0.1}, comm);
    expect(n.loss == w.loss, "the loss");
    expect_same_bits(n.gradient, w.gradient.to(DType::bf16));
  });
}

TEST_CASE("cross entropy refuses invalid targets and says where they are") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = data_of(0, {4, 3});
    const auto given = [](double last) { return Tensor::from({4}, {0, 1, 2, last}, DType::i64); };
    expect_refusal(
        [&] { cross_entropy(x, given(3), {}, comm); },
        {"tests/losses/test_cross_entropy.cpp:", "cross_entropy: target 3 at position 3 is not in 0..2", "-100"});
    expect_refusal([&] { cross_entropy(x, given(-1), {.ignore_index = 1}, comm); }, {"target -1", "to ignore, 1"});
    expect_refusal([&] { cross_entropy(x, Tensor::arange(3), {}, comm); }, {"(4, 3) and i64 (3)"});
    expect_refusal([&] { cross_entropy(x, given(0).to(DType::f64), {}, comm); }, {"f64 (4)"});
    expect_refusal([&] { cross_entropy(x, given(0), {.label_smoothing = 1.5}, comm); }, {"smoothing is 1.5", "0..1"});
    expect_refusal([&] { cross_entropy(x, given(0), {.weights = Var(row_of({1, 2}))}, comm); }, {"(3), not (2)"});
  });
}

TEST_CASE("cross entropy reports ranks with different label smoothing") {
  CHECK_THROWS_WITH(run_ranks(2,
                              [](Communicator& comm) {
                                const Tensor x = data_of(0, {4, 3});
                                cross_entropy(x, targets(4, 1), {.label_smoothing = 0.1 * number(comm)}, comm);
                              }),
                    Catch::Contains("label smoothing 0,") && Catch::Contains("label smoothing 0.1"));
}

}  // namespace test_cross_entropy
