// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/features.h"

#include "tests/support/on_ranks.h"

namespace weft {
namespace {

TEST_CASE("features of samples are in order and on every rank, also where ranks have none and the network meets") {
  for (const int64_t count : {1, 3, 1201})
    on_ranks([&](Communicator& comm) {
      const Tensor inputs = Tensor::arange(count * 2, DType::f64).reshape({count, 2});
      int64_t calls = 0;
      const auto network = [&](Tape& tape, const Tensor& piece) {
        ++calls;
        expect(piece.shape()[0] <= 500, "pieces are small, not " + text(piece.shape()));
        comm.barrier();  // as a collective in it would: ranks with other numbers of calls would wait forever
        return square(tape.constant(piece));
      };
      expect_same_bits(encoded(inputs, network, comm), square(inputs).value());
      expect(calls == (count + 500 * comm.size() - 1) / (500 * comm.size()), "as few pieces as will do");
    });
}

TEST_CASE("the accuracy of scores is the part of rows whose largest is at the label") {
  const Tensor scores = Tensor::from({4, 3}, {1, 2, 0, 5, 5, 1, 0, 0, 1, -1, -3, -2}, DType::f64);
  CHECK(accuracy(scores, Tensor::from({4}, {1, 0, 2, 2}, DType::i64)) == 0.75);
}

}  // namespace
}  // namespace weft
