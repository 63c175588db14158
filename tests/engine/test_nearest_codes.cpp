// SPDX-License-Identifier: Apache-2.0
// nearest_rows against exhaustive search in f64.
#include "tests/support/on_each_device.h"

#include <bit>
#include <limits>

#include "weft/engine/kernels/nearest_code.h"
#include "weft/engine/ops/nearest.h"

using namespace weft;

namespace test_nearest_codes {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> searched(const Tensor& x, const Tensor& codes) {
  const Values rows = x.values(), table = codes.values();
  const int64_t width = x.shape()[1];
  std::vector<double> found;
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    double least = infinity, index = 0;
    for (int64_t j = 0; j < codes.shape()[0]; ++j) {
      const double distance = squared_distance(rows.data() + i * width, table.data() + j * width, width);
      if (distance < least) least = distance, index = static_cast<double>(j);
    }
    found.push_back(index);
  }
  return found;
}

// Rows with two codes that f32 cannot tell apart: the second differs from the first in a last digit.
Tensor twins(const Shape& shape, DType dtype) {
  Values values = Tensor::normal(shape, {3, 1}, 0, 1, dtype).values();
  const auto width = static_cast<size_t>(shape[1]), half = values.size() / 2 / width * width;
  for (size_t i = 0; i < half; ++i) values[half + i] = values[i];
  for (size_t i = 0; i < half; i += 3 * width) values[half + i + i / width % width] *= 1 + 0x1p-23;
  return Tensor::from(shape, values, dtype);
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows equals an exact search for every extent and type") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t width : {1, 16, 100})
      for (const int64_t codes : {1, 17, 1024, 1025, 2100})
        for (const int64_t rows : {0, 10, 70}) {
          INFO(text(dtype) << ", " << rows << " rows and " << codes << " codes of width " << width);
          const Tensor x = Tensor::normal({rows, width}, {1, 1}, 0, 1, dtype),
                       table = Tensor::normal({codes, width}, {1, 2}, 0, 1, dtype);
          const Tensor found = nearest_rows(x.to(device), table.to(device));
          CHECK(found.dtype() == DType::i64);
          CHECK(found.values() == searched(x, table));
        }
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows tells codes apart that f32 arithmetic cannot") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double offset : {0.0, 30.0, 3000.0}) {  // a larger offset leaves fewer digits for the difference
      INFO(text(dtype) << " about " << offset);
      const auto moved = [&](const Tensor& t) { return (Var(t) + offset).value(); };
      const Tensor codes = moved(twins({400, 24}, dtype));
      const Tensor x = moved(Tensor::normal({200, 24}, {3, 2}, 0, 1, dtype));
      CHECK(nearest_rows(x.to(device), codes.to(device)).values() == searched(x, codes));
      CHECK(nearest_rows(codes.to(device), codes.to(device)).values() == searched(codes, codes));
    }
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows returns the first of equally near codes") {
  const Tensor codes = Tensor::zeros({2000, 5}, DType::f32, device);
  CHECK(nearest_rows(Tensor::normal({20, 5}, {1, 1}, 0, 1, DType::f32, device), codes).values() == Values(20, 0));
  const Tensor ends = f64({4, 1}, {1, -1, 1, -1});
  CHECK(nearest_rows(f64({3, 1}, {0, 2, -2}), ends).values() == Values{0, 0, 1});
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows of a row does not depend on the other rows") {
  const Tensor x = Tensor::normal({100, 33}, {4, 1}, 0, 1, DType::f32, device), codes = twins({3000, 33}, DType::f32);
  const Values all = nearest_rows(x, codes.to(device)).values();
  for (int64_t i = 0; i < 100; ++i)
    CHECK(nearest_rows(x.slice(i, i + 1), codes.to(device)).item() == all[static_cast<size_t>(i)]);
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows works at the ends of the number range") {
  for (const double scale : {1e-30, 1e-22, 1e-10, 1e10, 1e18, 3e19, 1e30}) {
    INFO("scaled by " << scale);
    const Tensor x = (Var(Tensor::normal({50, 7}, {5, 1})) * scale).value(),
                 codes = (Var(Tensor::normal({60, 7}, {5, 2})) * scale).value();
    CHECK(nearest_rows(x.to(device), codes.to(device)).values() == searched(x, codes));
  }
}

TEST_CASE("the error of a score is infinite if the score might overflow") {
  CHECK(ScoreError(precision_of<float>, 8)(1e19, 1e19) == infinity);
  CHECK(ScoreError(precision_of<float>, 8)(1e18, 1e18) < 1e31);
  CHECK(ScoreError(precision_of<double>, 8)(1e154, 1e154) == infinity);
  CHECK(ScoreError(precision_of<float>, 8)(std::nan(""), 1) == infinity);
}

// A row or a code, its norm, and what tensor cores make of its values: truncated ones.
struct Factors {
  std::vector<float> values, truncated;
  double norm = 0;

  Factors(int64_t width, uint64_t number, double mean) {
    for (const double v : Tensor::normal({width}, {number}, mean, 1).values()) {
      values.push_back(static_cast<float>(v));
      truncated.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(values.back()) & ~0x1fffu));
      norm += v * v;
    }
    norm = std::sqrt(norm);
  }
};

TEST_CASE("scores in TF32 are within their error, which leaves few codes to compare, however wide they are") {
  for (const int64_t width : {64, 256, 1024})
    for (const double mean : {0, 2}) {  // with terms that cancel, and with equal signs
      const ScoreError error(tf32, width);
      const Factors row(width, 1, mean);
      std::vector<double> scores, errors;
      for (uint64_t code = 0; code < 500; ++code) {
        const Factors c(width, code + 2, mean);
        float sum = 0;
        double exact = 0;
        for (size_t p = 0; p < c.values.size(); ++p) {
          sum += row.truncated[p] * c.truncated[p];
          exact += static_cast<double>(row.values[p]) * static_cast<double>(c.values[p]);
        }
        scores.push_back(sum - c.norm * c.norm / 2);
        errors.push_back(error(row.norm, c.norm));
        CHECK(std::abs(sum - exact) < errors.back());
      }
      double best = -infinity;
      for (size_t i = 0; i < scores.size(); ++i) best = std::max(best, scores[i] - errors[i]);
      int left = 0;
      for (size_t i = 0; i < scores.size(); ++i) left += scores[i] + errors[i] >= best;
      INFO(width << " values about " << mean << ": " << left << " of 500 codes");
      CHECK(left <= 25);
    }
}

TEST_CASE_METHOD(OnEachDevice,
                 "nearest_rows never picks a NaN or infinite code, and returns code 0 for a non-finite row") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor codes = f64({5, 2}, {nan, 0, 5, 5, infinity, 0, 1, 1, 0, -infinity});
  CHECK(nearest_rows(f64({5, 2}, {1, 1, 4, 4, nan, 1, infinity, 0, 0, 0}), codes).values() == Values{3, 1, 0, 0, 3});
  const Tensor none = f64({2, 2}, {nan, 0, 0, nan});
  CHECK(nearest_rows(f64({1, 2}, {1, 1}), none).values() == Values{0});
  CHECK(nearest_rows(f64({1, 2}, {nan, 1}), f64({2, 2}, {5, 5, 1, 1})).values() == Values{0});
}

TEST_CASE_METHOD(OnEachDevice, "nearest_rows refuses rows and codes that do not fit") {
  const auto on_device = [&](const Shape& shape, DType dtype = DType::f32) {
    return Tensor::zeros(shape, dtype, device);
  };
  CHECK_THROWS_WITH(nearest_rows(on_device({2, 3}), on_device({4, 2})),
                    "nearest_rows: rows and codes of one width are needed, not (2, 3) and (4, 2)");
  CHECK_THROWS_WITH(nearest_rows(on_device({2, 3}), on_device({4, 3}, DType::f64)),
                    Catch::Contains("of one floating type on one device"));
  CHECK_THROWS_WITH(nearest_rows(on_device({2, 3}), on_device({0, 3})), Catch::Contains("no codes to choose from"));
}

}  // namespace test_nearest_codes
