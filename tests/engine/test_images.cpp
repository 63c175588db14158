// SPDX-License-Identifier: Apache-2.0
// Values, gradients and refusals of the ops on images.
#include <cmath>

#include "tests/support/on_each_device.h"
#include "weft/engine/kernels/scalar_ops.h"

using namespace weft;
using Catch::Contains;

namespace {

const Sliding skewed = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};

struct Image {
  Values values;
  Shape shape;
  explicit Image(const Var& x) : values(values_of(x)), shape(x.shape()) {}
  double at(int64_t b, int64_t y, int64_t x, int64_t c) const {
    if (y < 0 || y >= shape[1] || x < 0 || x >= shape[2]) return 0;
    return values[static_cast<size_t>(((b * shape[1] + y) * shape[2] + x) * shape[3] + c)];
  }
};

// Every output by definition: the sum over window and channels.
Values convolved(const Var& input, const Var& weights, const Sliding& s, const Shape& result) {
  const Image x(input), w(weights);
  Values y;
  for (int64_t b = 0; b < result[0]; ++b)
    for (int64_t i = 0; i < result[1]; ++i)
      for (int64_t j = 0; j < result[2]; ++j)
        for (int64_t o = 0; o < result[3]; ++o) {
          double sum = 0;
          for (int64_t ky = 0; ky < w.shape[0]; ++ky)
            for (int64_t kx = 0; kx < w.shape[1]; ++kx)
              for (int64_t c = 0; c < w.shape[2]; ++c)
                sum += x.at(b, i * s.stride.y - s.padding.y + ky * s.dilation.y,
                            j * s.stride.x - s.padding.x + kx * s.dilation.x, c) *
                       w.at(ky, kx, c, o);
          y.push_back(sum);
        }
  return y;
}

double dot(const Var& a, const Var& b) { return sum(a * b).value().item(); }

}  // namespace

TEST_CASE_METHOD(OnEachDevice, "conv2d is the sum over window and channels for every stride, padding and dilation") {
  const Var x = random({2, 5, 6, 3}), w = random({3, 2, 3, 4}, 1), bias = random({4}, 2);
  const Var y = conv2d(x, w, {}, skewed);
  CHECK(y.shape() == Shape{2, 3, 8, 4});
  CHECK(distance(y, f64(y.shape(), convolved(x, w, skewed, y.shape()))) < 1e-13);
  CHECK(distance(conv2d(x, w, bias, skewed), add_along(y, bias, -1)) < 1e-13);
  const Var plain = conv2d(x, w);
  CHECK(plain.shape() == Shape{2, 3, 5, 4});
  CHECK(distance(plain, f64(plain.shape(), convolved(x, w, {}, plain.shape()))) < 1e-13);
  CHECK(conv2d(empty({0, 5, 6, 3}), w).shape() == Shape{0, 3, 5, 4});
}

TEST_CASE_METHOD(OnEachDevice,
                 "conv2d with a fused activation equals conv2d followed by activate, in values and gradients") {
  const Tensor x = random({1, 4, 4, 2}), w = random({2, 2, 2, 3}, 1), bias = random({3}, 2),
               g = random({1, 3, 3, 3}, 3);
  for (const Unary op : {Unary::Relu, Unary::Tanh, Unary::Sigmoid, Unary::Gelu, Unary::Silu}) {
    const Activation activation = {op, {}};
    const auto fused = [&](const Var& v) { return conv2d(v, w, bias, {}, activation); };
    const auto composed = [&](const Var& v) { return activate(conv2d(v, w, bias), activation); };
    CHECK(distance(fused(x), composed(x)) < 1e-14);
    CHECK(distance(gradient_of(fused, x, g), gradient_of(composed, x, g)) < 1e-14);
  }
}

TEST_CASE_METHOD(OnEachDevice, "conv_transpose2d is the adjoint of conv2d plus a bias") {
  const Var x = random({2, 6, 6, 3}), w = random({3, 2, 3, 4}, 1), bias = random({3}, 2);
  const Var y = conv2d(x, w, {}, skewed);
  const Var g = random(y.shape(), 3);
  const Var back = conv_transpose2d(g, w, {}, {skewed, {1, 0}});  // the stride of 2 did not reach the sixth row
  CHECK(dot(y, g) == Approx(dot(x, back)));
  CHECK(distance(conv_transpose2d(g, w, bias, {skewed, {1, 0}}), add_along(back, bias, -1)) < 1e-13);
  CHECK(conv_transpose2d(g, w).shape() == Shape{2, 5, 9, 3});
  CHECK(values_of(conv_transpose2d(f64({1, 1, 1, 1}, {2}), f64({2, 2, 1, 1}, {1, 2, 3, 4}))) == Values{2, 4, 6, 8});
}

TEST_CASE_METHOD(OnEachDevice, "unfold lists every window's pixels, and fold is its adjoint") {
  const Var x = counted({1, 2, 3, 1});
  CHECK(values_of(unfold(x, {2, 2})) == Values{0, 1, 3, 4, 1, 2, 4, 5});
  CHECK(values_of(unfold(x, {1, 2}, {.stride = {1, 3}, .padding = {0, 1}})) == Values{0, 0, 2, 0, 0, 3, 5, 0});
  CHECK(values_of(fold(unfold(x, {2, 2}), {2, 3}, {2, 2})) == Values{0, 2, 2, 3, 8, 5});
  const Var a = random({2, 5, 4, 3}), windows = unfold(a, {2, 2}, skewed), b = random(windows.shape(), 1);
  CHECK(dot(windows, b) == Approx(dot(a, fold(b, {5, 4}, {2, 2}, skewed))));
}

TEST_CASE_METHOD(OnEachDevice, "max_pool2d takes the largest pixel, never the padding, and ties share the gradient") {
  const Var x = f64({1, 2, 4, 1}, {-1, -2, -5, -3, -4, -2, -9, -3});
  CHECK(values_of(max_pool2d(x, {2, 2})) == Values{-1, -3});
  CHECK(values_of(max_pool2d(x, {2, 2}, {.stride = {2, 2}, .padding = {1, 1}})) == Values{-1, -2, -3, -4, -2, -3});
  const auto pool = [](const Var& v) { return max_pool2d(v, {2, 2}); };
  const Var g = gradient_of(pool, f64({1, 2, 2, 1}, {5, 5, 1, 5}), f64({1, 1, 1, 1}, {6}));
  CHECK(values_of(g) == Values{2, 2, 0, 2});
  CHECK(std::isnan(values_of(max_pool2d(f64({1, 1, 2, 1}, {std::nan(""), 1}), {1, 2}))[0]));
}

TEST_CASE_METHOD(OnEachDevice, "max_pool2d and its gradient are those of the largest of unfolded pixels") {
  for (const int64_t channels : {1, 3, 16, 37}) {
    const Sliding apart = {.stride = {2, 1}, .dilation = {1, 2}};
    const auto pool = [&](const Var& v) { return max_pool2d(v, {3, 2}, apart); };
    const auto of_unfolded = [&](const Var& v) { return max(unfold(v, {3, 2}, apart), 3); };
    const Tensor x = round(random({2, 7, 5, channels}) * 3.0).value();  // with ties
    const Var y = pool(x), g = random(y.shape(), 1);
    CHECK(values_of(y) == values_of(of_unfolded(x)));
    // A card's fold adds windows in another order.
    CHECK(distance(gradient_of(pool, x, g.value()), gradient_of(of_unfolded, x, g.value())) < 1e-14);
    // The adjoint of the gradient, which shares alike: of g, in the direction v.
    const Tensor v = random(x.shape(), 2);
    const auto of_cotangent = [&](const auto& f) {
      return [&](const Var& cotangent) {
        const Var image = cotangent.tape()->watch(x);
        return cotangent.tape()->gradient(f(image), cotangent, {image}, Graph::create)[0];
      };
    };
    CHECK(distance(gradient_of(of_cotangent(pool), g.value(), v),
                   gradient_of(of_cotangent(of_unfolded), g.value(), v)) < 1e-14);
  }
}

TEST_CASE_METHOD(OnEachDevice, "average_pool2d includes the zeros of the padding") {
  const Var x = f64({1, 2, 2, 1}, {1, 2, 3, 6});
  CHECK(values_of(average_pool2d(x, {2, 2})) == Values{3});
  CHECK(values_of(average_pool2d(x, {2, 2}, {.stride = {2, 2}, .padding = {1, 1}})) == Values{0.25, 0.5, 0.75, 1.5});
}

TEST_CASE_METHOD(OnEachDevice, "upsample_nearest repeats each pixel in a square") {
  CHECK(values_of(upsample_nearest(f64({1, 1, 2, 1}, {1, 2}), 2)) == Values{1, 1, 2, 2, 1, 1, 2, 2});
  CHECK(upsample_nearest(empty({0, 2, 2, 3}), 3).shape() == Shape{0, 6, 6, 3});
}

TEST_CASE_METHOD(OnEachDevice, "image ops refuse shapes and options that do not fit") {
  const Var x = empty({1, 4, 4, 2}), w = empty({3, 3, 2, 5});
  CHECK_THROWS_WITH(conv2d(empty({4, 4, 2}), w),
                    "conv2d: images must be (batch, height, width, channels), not (4, 4, 2)");
  CHECK_THROWS_WITH(conv2d(x, empty({3, 3, 4, 5})),
                    "conv2d: weights f64 (3, 3, 4, 5) do not fit images f64 (1, 4, 4, 2)");
  CHECK_THROWS_WITH(conv2d(x, w, empty({2})), Contains("conv2d: the bias must be f64 (5)") && Contains("not f64 (2)"));
  CHECK_THROWS_WITH(conv2d(x, w, {}, {.stride = {0, 1}}), "conv2d: stride {0, 1}, padding {0, 0}, dilation {1, 1}");
  CHECK_THROWS_WITH(
      conv2d(x, w, {}, {.dilation = {2, 1}}),
      "conv2d: a kernel of {3, 3} with dilation {2, 1} is larger than an image of {4, 4} with padding {0, 0}");
  CHECK_THROWS_WITH(conv_transpose2d(x, w), Contains("conv_transpose2d: weights f64 (3, 3, 2, 5) do not fit"));
  CHECK_THROWS_WITH(conv_transpose2d(x, empty({3, 3, 5, 2}), {}, {{.stride = {2, 2}}, {2, 0}}),
                    "conv_transpose2d: output padding {2, 0} must be below the stride {2, 2}");
  CHECK_THROWS_WITH(conv_transpose2d(x, empty({1, 1, 5, 2}), {}, {{.padding = {2, 0}}}),
                    "conv_transpose2d: nothing is left of (1, 4, 4, 2) inside padding {2, 0}");
  CHECK_THROWS_WITH(unfold(x, {0, 2}), "unfold: a kernel of {0, 2}");
  CHECK_THROWS_WITH(fold(empty({1, 3, 3, 4}), {4, 4}, {2, 2}),
                    "fold: windows must be (batch, 3, 3, 4, channels), not (1, 3, 3, 4)");
  CHECK_THROWS_WITH(max_pool2d(x, {2, 2}, {.padding = {2, 0}}),
                    "max_pool2d: padding {2, 0} leaves windows of {2, 2} empty");
  CHECK_THROWS_WITH(average_pool2d(empty({4, 4}), {2, 2}), Contains("average_pool2d: images must be"));
  CHECK_THROWS_WITH(upsample_nearest(x, 0), "upsample_nearest: by a factor of 0");
}
