// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/features.h"

#include "tests/support/on_ranks.h"

namespace weft {
namespace {

TEST_CASE(
    "features are in sample order on every rank, even if ranks have no samples and the network uses collectives") {
  for (const int64_t count : {1, 3, 1201})
    on_ranks([&](Communicator& comm) {
      const Tensor inputs = Tensor::arange(count * 2, DType::f64).reshape({count, 2});
      int64_t calls = 0;
      const auto network = [&](Tape& tape, const Tensor& piece) {
        ++calls;
        expect(piece.shape()[0] <= 500, "pieces are small, not " + text(piece.shape()));
        comm.barrier();  // stands for a collective: ranks with different numbers of calls would block
        return square(tape.constant(piece));
      };
      expect_same_bits(encoded(inputs, network, comm), square(inputs).value());
      expect(calls == (count + 500 * comm.size() - 1) / (500 * comm.size()), "as few pieces as will do");
    });
}

TEST_CASE("accuracy is the fraction of rows whose largest score is at the label") {
  const Tensor scores = Tensor::from({4, 3}, {1, 2, 0, 5, 5, 1, 0, 0, 1, -1, -3, -2}, DType::f64);
  CHECK(accuracy(scores, Tensor::from({4}, {1, 0, 2, 2}, DType::i64)) == 0.75);
}

}  // namespace
}  // namespace weft
