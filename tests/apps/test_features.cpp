// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/features.h"

#include "apps/shared/evaluation/feature_statistics.h"
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

TEST_CASE("the statistics of features tell whether rows point in different directions") {
  const auto rows = [](std::vector<double> values) { return Tensor::from({4, 3}, values, DType::f64); };
  const FeatureStatistics same = statistics_of(rows({1, 2, 2, 2, 4, 4, 1, 2, 2, 2, 4, 4}));
  CHECK(same.rank == Approx(1));
  CHECK(same.norm == Approx(4.5));
  CHECK(same.spread < 1e-7);
  const FeatureStatistics opposite = statistics_of(rows({3, 0, 0, -3, 0, 0, 0, 3, 0, 0, -3, 0}));
  CHECK(opposite.rank == Approx(2));
  CHECK(opposite.spread == 1);
  // Singular values 2 and 1: shares 2/3 and 1/3.
  CHECK(statistics_of(rows({2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})).rank == Approx(3 / std::pow(2, 2 / 3.)));
  CHECK(statistics_of(Tensor::zeros({2, 3}, DType::f32)).norm == 0);
}

TEST_CASE("features in a plane keep the distances of directions that lie in one") {
  const Tensor places = in_a_plane(Tensor::from({3, 3}, {2, 0, 0, 0, 1, 0, 0, 5, 0}, DType::f64));
  REQUIRE(places.shape() == Shape{3, 2});
  const double* at = places.data<double>();
  const auto apart = [&](int a, int b) { return std::hypot(at[2 * a] - at[2 * b], at[2 * a + 1] - at[2 * b + 1]); };
  CHECK(apart(0, 1) == Approx(std::sqrt(2)));
  CHECK(apart(1, 2) == Approx(0).margin(1e-9));
}

}  // namespace
}  // namespace weft
