// SPDX-License-Identifier: Apache-2.0
// Convolutions on the card against the CPU's, by cuDNN and without it. Samples are quarters, as in
// test_cuda_backend.cpp.
#include <algorithm>

#include "tests/kernels/cuda_checks.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft {
namespace {

TEST_CASE("convolutions and their adjoints on the card are exact; with bias and activation to 16 units, bf16 2") {
  SKIP_WITHOUT_A_CARD();
  const std::vector<Convolution> cases = {
      {2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1},
      {1, 7, 8, 8, 3, 2, 3, 4, 5, 2, 2, 1, 1, 2, 2},
      {3, 4, 4, 5, 1, 1, 4, 4, 6, 1, 1, 0, 0, 1, 1},
      {2, 6, 5, 2, 4, 4, 3, 2, 3, 2, 3, 2, 1, 1, 1},
      {0, 4, 4, 2, 3, 3, 4, 4, 2, 1, 1, 1, 1, 1, 1},
      {2, 4, 4, 3, 1, 1, 2, 2, 2, 2, 2, 0, 0, 1, 1},
      {1, 7, 9, 1, 2, 3, 2, 5, 8, 3, 1, 1, 0, 4, 2},  // strides other than dilations
      {2, 5, 6, 3, 3, 3, 5, 5, 4, 1, 1, 1, 1, 1, 1},  // the last column has no window
      {1, 5, 6, 2, 3, 3, 6, 6, 4, 1, 1, 1, 1, 1, 1},  // a window beyond the padding
      {1, 4, 4, 2, 2, 2, 1, 3, 3, int64_t{1} << 32, 1, 0, 0, 1, 1},
      {6, 65, 64, 64, 5, 5, 65, 64, 1, 1, 1, 2, 2, 1, 1}};  // the last is split: 160 MB when unfolded in f32
  for (const DType type : floating)
    for (const Convolution& c : cases) {
      const bool large = c.channels == 64;
      if (large && type != DType::f32) continue;
      INFO(text(type) << " " << c.height << "x" << c.width << " by " << c.kernel_height << "x" << c.kernel_width);
      const int64_t taps = c.kernel_height * c.kernel_width;
      const Tensor x = sample({c.batch, c.height, c.width, c.channels}, type), bias = sample({c.out_channels}, type);
      const Tensor g = sample({c.batch, c.out_height, c.out_width, c.out_channels}, type);
      const Tensor w = sample({c.kernel_height, c.kernel_width, c.channels, c.out_channels}, type, -1, 1);
      const Activation silu = {Unary::Silu, {}};
      compare(0, {x, w}, {g}, VERB(convolve(c, in[0], in[1], {}, out[0])));
      compare(type == DType::bf16 ? 2 : 16, {x, w, bias}, {g}, VERB(convolve(c, in[0], in[1], {&in[2], silu}, out[0])));
      compare(0, {g, w}, {x}, VERB(convolve_input_gradient(c, in[0], in[1], out[0])));
      compare(0, {x, g}, {w}, VERB(convolve_weight_gradient(c, in[0], in[1], out[0])));
      if (large) continue;
      const Tensor windows = sample({c.batch, c.out_height, c.out_width, taps, c.channels}, type);
      compare(0, {x}, {windows}, VERB(unfold(c, in[0], out[0])));
      compare(0, {windows}, {x}, VERB(fold(c, in[0], out[0])));
      const Tensor pooled = sample({c.batch, c.out_height, c.out_width, c.channels}, type);
      compare(0, {x}, {pooled}, VERB(max_pool(c, in[0], out[0])));
      Tensor maxima = Tensor::like(pooled);
      backend(Device::cpu).max_pool(c, x, maxima);
      compare(0, {x, maxima, pooled}, {x}, VERB(max_pool_pullback(c, in[0], in[1], in[2], out[0])));
      compare(0, {x, maxima, x}, {pooled}, VERB(max_pool_tangent(c, in[0], in[1], in[2], out[0])));
    }
}

TEST_CASE("f32 convolutions on the card keep 24 bits unless TF32 is allowed") {
  SKIP_WITHOUT_A_CARD();
  const Convolution c = {2, 6, 5, 8, 3, 3, 6, 5, 8, 1, 1, 1, 1, 1, 1};
  const auto largest = [&](double value) {  // of each pass
    const auto ones = [](const Shape& shape, double scale = 1) {
      return Tensor::full(shape, scale, DType::f32, Device::cuda);
    };
    Tensor x = ones({2, 6, 5, 8}, value), w = ones({3, 3, 8, 8}), y = ones({2, 6, 5, 8});
    Backend& card = backend(Device::cuda);
    const auto most = [](const Tensor& of) { return std::ranges::max(of.values()); };
    card.convolve(c, x, w, {}, y);
    std::vector<double> found{most(y)};
    card.convolve_weight_gradient(c, x, ones({2, 6, 5, 8}), w);
    found.push_back(most(w));
    card.convolve_input_gradient(c, x, ones({3, 3, 8, 8}), y);
    found.push_back(most(y));
    return found;
  };
  const auto sums = [](double value) { return std::vector<double>{72 * value, 60 * value, 72 * value}; };
  const double fine = 1 + 0x1p-15, coarse = 1 + 0x1p-10;
  CHECK(largest(fine) == sums(fine));
  {
    const AllowedTf32 allowed;
    CHECK(largest(fine) == sums(1));
    CHECK(largest(coarse) == sums(coarse));
  }
  CHECK(largest(fine) == sums(fine));
}

TEST_CASE("convolutions in a graph are repeated with new values") {
  SKIP_WITHOUT_A_CARD();
  const Convolution c = {2, 4, 5, 3, 3, 3, 4, 5, 4, 1, 1, 1, 1, 1, 1};
  const auto graph = backend(Device::cuda).make_graph();
  const auto drawn = [](const Shape& shape, uint64_t stream) {
    return Tensor::normal(shape, {3, stream}, 0, 1, DType::f32, Device::cuda);
  };
  Tensor x = drawn({2, 4, 5, 3}, 0), w = drawn({3, 3, 3, 4}, 1), y = drawn({2, 4, 5, 4}, 2), dx = Tensor::like(x),
         dw = Tensor::like(w);
  const auto step = [&] {
    Backend& card = backend(Device::cuda);
    card.convolve(c, x, w, {}, y);
    card.convolve_input_gradient(c, y, w, dx);
    card.convolve_weight_gradient(c, x, y, dw);
  };
  const auto results = [&] { return std::vector{y.values(), dx.values(), dw.values()}; };
  for (uint64_t i = 0; i < 4; ++i) {
    x.copy_from(drawn(x.shape(), 10 + i));
    step();
    const auto expected = results();
    for (Tensor* const result : {&y, &dx, &dw}) backend(Device::cuda).fill(not_a_number, *result);
    graph->run(step, [] {});
    CHECK(results() == expected);
  }
}

}  // namespace
}  // namespace weft
