// SPDX-License-Identifier: Apache-2.0
// Impossible sizes are refused with a clear error in every function and on every device.
#include <limits>

#include "tests/support/on_each_device.h"

using namespace weft;
using Catch::Contains;

namespace {

constexpr int64_t large = int64_t{1} << 62, half = int64_t{1} << 32, most = std::numeric_limits<int64_t>::max();
const auto too_large =
    Contains("is too large; its extents, but for zeros, may multiply to 1152921504606846975 at most");

}  // namespace

TEST_CASE("a shape whose element or byte count overflows is refused, even with an empty axis") {
  CHECK(Shape({Shape::max_size}).size() == Shape::max_size);
  CHECK_THROWS_WITH(Shape({Shape::max_size + 1}),
                    "shape: (1152921504606846976) is too large; its extents, but for zeros, may multiply to "
                    "1152921504606846975 at most");
  for (const std::vector<int64_t>& extents : std::vector<std::vector<int64_t>>{{large},
                                                                               {most},
                                                                               {half, half},
                                                                               {half, half, half},
                                                                               {half, half, 0},
                                                                               {0, half, half},
                                                                               {half, 0, half},
                                                                               {most, most, most, most, most, most},
                                                                               {3, 1, most},
                                                                               {int64_t{1} << 21, half, 1 << 8}}) {
    CHECK_THROWS_WITH(Shape(extents), too_large);
    CHECK_FALSE(Shape::fits(extents));
  }
  const Shape row{1, half};
  CHECK_THROWS_WITH(row.with(0, half), too_large);
  CHECK_THROWS_WITH(row.with_inserted(0, half), too_large);
  CHECK_THROWS_WITH(row.with(0, -1), "shape: extent -1 of axis 0 is negative");
  CHECK_THROWS_WITH(row.with_inserted(2, -3), "shape: extent -3 of axis 2 is negative");
  CHECK(Shape({0, half, 5}).without(0).size() == 5 * half);
  CHECK(Shape({0, half, 5}).product(1, 3) == 5 * half);
  CHECK(Shape({half, 0}).size() == 0);
}

TEST_CASE("sum_of_extents saturates instead of wrapping around") {
  CHECK(sum_of_extents({}) == 0);
  CHECK(sum_of_extents({3, 4}) == 7);
  CHECK(sum_of_extents({most, 0}) == most);
  CHECK(sum_of_extents({most, 1}) == most);
  CHECK(sum_of_extents({large, large, large, large, large}) == most);
}

TEST_CASE_METHOD(OnEachDevice, "every tensor factory refuses a tensor that is too large") {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64, DType::i64}) {
    CHECK_THROWS_WITH(Tensor({int64_t{1} << 61}, dtype, device), too_large);
    CHECK_THROWS_WITH(Tensor({half, half}, dtype, device), too_large);
    CHECK_THROWS_WITH(Tensor::full({half, half}, 1, dtype, device), too_large);
    CHECK_THROWS_WITH(Tensor::arange(large, dtype, device), too_large);
    CHECK_THROWS_WITH(Tensor::arange(-1, dtype, device), Contains("extent -1 of axis 0 is negative"));
    // Sizes that fit into 64 bits but into no memory.
    CHECK_THROWS_WITH(Tensor({Shape::max_size}, dtype, device), Contains("bytes"));
    CHECK_THROWS_WITH(Tensor({1 << 20, 1 << 20, 1 << 10}, dtype, device), Contains("bytes"));
  }
  CHECK_THROWS_WITH(Tensor::from({half, half}, {}, DType::f64, device), too_large);
  CHECK_THROWS_WITH(Tensor::uniform({half, half}, {1}, 0, 1, DType::f32, device), too_large);
  CHECK_THROWS_WITH(Tensor::normal({half, half}, {1}, 0, 1, DType::f32, device), too_large);
  const Tensor x = full({2, 3}, 1), nothing = empty({0});
  CHECK_THROWS_WITH(x.reshape({half, half, 0}), too_large);
  CHECK_THROWS_WITH(nothing.reshape({half, half, 0}), too_large);
  const StorageHandle memory(backend(device).allocate(64));
  CHECK_THROWS_WITH(Tensor(memory, 0, {half, half}, DType::f64), too_large);
  CHECK_THROWS_WITH(Tensor(memory, 0, {Shape::max_size}, DType::f64), Contains("does not fit into"));
  CHECK_THROWS_WITH(Tensor(memory, most, {Shape::max_size}, DType::f64), Contains("does not fit into"));
  CHECK_THROWS_WITH(Tensor(memory, 8, {8}, DType::f64), Contains("does not fit into"));
  CHECK(Tensor(memory, 8, {7}, DType::f64).size() == 7);
}

TEST_CASE_METHOD(OnEachDevice, "an op whose result would be too large is refused before it writes") {
  const Var x = full({2, 3}, 1);
  CHECK_THROWS_WITH(repeat(x, 0, large), too_large);
  CHECK_THROWS_WITH(repeat(x, -1, most), too_large);
  CHECK_THROWS_WITH(repeat(empty({0, 3}), 0, large), too_large);
  CHECK_THROWS_WITH(repeat(x, 0, -1), "repeat: a count of -1");
  CHECK_THROWS_WITH(pad(x, 0, large, large), too_large);
  CHECK_THROWS_WITH(pad(x, 0, most, most), too_large);
  CHECK_THROWS_WITH(pad(x, 1, most - 1, 0), too_large);
  const Var wide = empty({0, Shape::max_size});
  const std::vector<Var> many(17, wide);  // if their sum wraps around, it is a possible size
  CHECK_THROWS_WITH(concat(many, 1), too_large);
  CHECK_THROWS_WITH(stack(many, 0), too_large);
  CHECK_THROWS_WITH(one_hot(i64({2}, {0, 1}), large), too_large);
  CHECK_THROWS_WITH(scatter_add_rows(x, i64({2}, {0, 1}), large), too_large);
  CHECK_THROWS_WITH(put_along(x, i64({2, 3}, {0, 1, 0, 1, 0, 1}), 0, large), too_large);
  CHECK_THROWS_WITH(matmul(empty({half, 0}), empty({0, half})), too_large);
  CHECK_THROWS_WITH(pairwise_squared_distance(empty({half, 0}), empty({half, 0})), too_large);
}

TEST_CASE_METHOD(OnEachDevice, "image ops refuse images, windows and strides that are too large") {
  const Var x = full({1, 4, 4, 2}, 1), w = full({2, 2, 2, 3}, 1), back = full({2, 2, 3, 2}, 1);
  const auto max_of_images = Contains("is too large; 1073741824 is the most in images");
  CHECK_THROWS_WITH(upsample_nearest(x, large), too_large);
  CHECK_THROWS_WITH(conv2d(x, w, {}, {.padding = {most, 0}}), max_of_images);
  CHECK_THROWS_WITH(conv2d(x, w, {}, {.padding = {0, large}}), max_of_images);
  CHECK_THROWS_WITH(conv2d(x, w, {}, {.dilation = {large, large}}), max_of_images);
  CHECK_THROWS_WITH(conv_transpose2d(x, back, {}, {{.stride = {most, 1}}}), max_of_images);
  CHECK_THROWS_WITH(unfold(x, {large, large}), max_of_images);
  CHECK_THROWS_WITH(unfold(x, {1 << 30, 1 << 30}, {.padding = {1 << 30, 1 << 30}}), Contains("too large"));
  CHECK_THROWS_WITH(fold(full({1, 1, 1, 1, 1}, 1), {large, large}, {1, 1}), max_of_images);
  CHECK_THROWS_WITH(max_pool2d(x, {2, 2}, {.stride = {1, 1}, .padding = {most, most}}), max_of_images);
  CHECK_THROWS_WITH(conv2d(empty({0, half, 4, 2}), w), max_of_images);
}
