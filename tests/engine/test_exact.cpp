// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/on_ranks.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/exact.h"
#include "weft/engine/ops/index.h"

namespace weft {
namespace {

// Sizes from 1e-12 to 1e5, so that the order of a sum changes its bits.
Tensor term(uint64_t i, DType dtype) {
  std::vector<double> values = Tensor::uniform({50}, {3, i}, -1, 1, DType::f64).values();
  const std::vector<double> sizes = Tensor::uniform({50}, {4, i}, -12, 5, DType::f64).values();
  for (size_t j = 0; j < values.size(); ++j) values[j] *= std::pow(10, sizes[j]);
  return Tensor::from({50}, values, dtype);
}

// The exact parts of a term, composed of other ops.
Tensor composed_parts(const Tensor& x) {
  const auto filled = [&](double value) { return Tensor::full(x.shape(), value, DType::f64, x.device()); };
  Tensor parts(exact_shape(x.shape()), DType::f64, x.device()), rest = x.to(DType::f64);
  rest = where(less(abs(rest).value(), filled(0x1p24)), rest, filled(std::nan(""))).value();
  for (int64_t i = 0; i < 4; ++i) {
    const double unit = std::ldexp(1, -8 - 32 * static_cast<int>(i));
    const Tensor multiple = (round(Var(rest) / unit) * unit).value();
    parts.slice(i, i + 1).reshape(x.shape()).copy_from(multiple);
    rest = (Var(rest) - multiple).value();
  }
  return parts;
}

TEST_CASE("adding exact parts in one pass equals cutting a term and adding its parts one by one") {
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device)) continue;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
      for (const int64_t size : {0, 1, 7, 50}) {
        Tensor sum = Tensor::normal(exact_shape({size}), {5}, 0, 1, DType::f64).to(device), expected = sum.clone();
        const Tensor x = term(1, dtype).slice(50 - size, 50).to(device);
        add_exactly(x, sum);
        backend(device).accumulate(1, composed_parts(x), expected);
        CHECK(sum.values() == expected.values());
      }
  }
}

TEST_CASE("an exact sum has the same bits in any order, unlike a plain sum") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<uint64_t> order(300);
    std::iota(order.begin(), order.end(), 0);
    std::vector<double> first, plain;
    int plain_differ = 0;
    for (int shuffle = 0; shuffle < 5; ++shuffle) {
      Tensor sum = Tensor::zeros(exact_shape({50}), DType::f64), rounded = Tensor::zeros({50}, dtype);
      for (const uint64_t i : order) {
        add_exactly(term(i, dtype), sum);
        backend(Device::cpu).accumulate(1, term(i, dtype), rounded);
      }
      const auto total = exact_total(sum, dtype).values();
      if (shuffle == 0) first = total, plain = rounded.values();
      CHECK(total == first);
      plain_differ += rounded.values() != plain;
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(shuffle)));
    }
    CHECK(plain_differ > 0);
  }
}

TEST_CASE("an exact sum is the true sum rounded once") {
  Tensor sum = Tensor::zeros(exact_shape({50}), DType::f64);
  std::vector<long double> expected(50, 0);
  for (uint64_t i = 0; i < 1000; ++i) {
    add_exactly(term(i, DType::f32), sum);
    const auto values = term(i, DType::f32).values();
    for (size_t j = 0; j < 50; ++j) expected[j] += static_cast<long double>(values[j]);
  }
  const auto total = exact_total(sum, DType::f64).values();
  for (size_t j = 0; j < 50; ++j)
    CHECK(std::abs(total[j] - static_cast<double>(expected[j])) <= 1e-15 * std::abs(total[j]) + 1e-28);
}

TEST_CASE("an exact sum of a million of the largest terms is not rounded") {
  const double largest = 0x1p24 - 0x1p-8, smallest = 0x1.fffffep-73;
  Tensor sum = Tensor::zeros(exact_shape({2}), DType::f64);
  const Tensor terms = Tensor::from({2}, {largest, smallest}, DType::f64);
  for (int i = 0; i < 1 << 20; ++i) add_exactly(terms, sum);
  CHECK(exact_total(sum, DType::f64).values() == std::vector<double>{largest * 0x1p20, smallest * 0x1p20});
}

TEST_CASE("an exact sum does not depend on how its terms are distributed over ranks") {
  const auto total = [](int ranks) {
    std::vector<double> result;
    run_ranks(ranks, [&](Communicator& comm) {
      Tensor sum = Tensor::zeros(exact_shape({50}), DType::f64);
      for (uint64_t i = 0; i < 24; ++i)
        if (static_cast<int>(i * i) % comm.size() == comm.rank().value) add_exactly(term(i, DType::f32), sum);
      const auto all = exact_total(comm.all_reduce(sum), DType::f32).values();
      if (comm.rank().value == 0) result = all;
    });
    return result;
  };
  const auto expected = total(1);
  for (const int ranks : {2, 3, 5, 8}) CHECK(total(ranks) == expected);
}

TEST_CASE("rows that are added exactly by index give the sums and the number of each index's rows") {
  const Tensor x = Tensor::uniform({40, 3}, {8}, -1, 1);
  for (const Device device : {Device::cpu, Device::cuda}) {
    if (!available(device)) continue;
    Tensor sums = Tensor::zeros(exact_shape({2, 3}), DType::f64, device),
           counts = Tensor::zeros({2}, DType::f64, device);
    Tensor expected = Tensor::zeros(exact_shape({2, 3}), DType::f64);
    for (const int64_t begin : {0, 30}) {
      std::vector<double> index;
      for (int64_t i = begin; i < begin + 10; ++i) {
        index.push_back(static_cast<double>(i % 3 / 2));
        for (int64_t part = 0; part < 4; ++part) {
          Tensor row = expected.slice(part, part + 1).reshape({2, 3}).slice(i % 3 / 2, i % 3 / 2 + 1);
          backend(Device::cpu)
              .accumulate(1, composed_parts(x.slice(i, i + 1)).slice(part, part + 1).reshape({1, 3}), row);
        }
      }
      const Tensor indices = Tensor::from({10}, index, DType::i64, device);
      backend(device).add_exact_rows(x.slice(begin, begin + 10).to(device), {{"test", "index"}, indices, 2}, sums,
                                     counts);
    }
    CHECK(sums.values() == expected.values());
    CHECK(counts.values() == std::vector<double>{14, 6});
  }
}

TEST_CASE("terms that cannot be summed exactly give NaN or an error") {
  for (const double bad : {0x1p24, -0x1p30, std::numeric_limits<double>::infinity(), std::nan("")}) {
    Tensor sum = Tensor::zeros(exact_shape({2}), DType::f64);
    add_exactly(Tensor::from({2}, {bad, 1}, DType::f64), sum);
    const auto total = exact_total(sum, DType::f64).values();
    CHECK(std::isnan(total[0]));
    CHECK(total[1] == 1);
  }
  Tensor sum({3, 2}, DType::f64);
  expect_refusal([&] { add_exactly(Tensor::zeros({2}, DType::i64), sum); }, {"add_exactly", "i64"});
  expect_refusal([&] { add_exactly(Tensor::zeros({2}), sum); }, {"(4, 2)", "(3, 2)"});
  expect_refusal([] { exact_total(Tensor::zeros({2}), DType::f32); }, {"exact_total", "(2)"});
}

}  // namespace
}  // namespace weft
