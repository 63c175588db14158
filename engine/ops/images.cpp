// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/ops/images.h"

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/checks.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

const Sliding skewed = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}};  // differs between y and x

// One sample a line.
// clang-format off
const std::vector<Sample> conv2d_samples = {
    {"", {{2, 4, 3, 2}, {3, 2, 2, 3}}, [](auto x) { return conv2d(x[0], x[1]); }},
    {"stride, padding, dilation", {{1, 4, 4, 2}, {2, 3, 2, 2}}, [](auto x) { return conv2d(x[0], x[1], {}, skewed); }},
    {"bias", {{1, 3, 3, 1}, {2, 2, 1, 2}, {2}}, [](auto x) { return conv2d(x[0], x[1], x[2]); }},
    {"bias, tanh", {{1, 3, 3, 1}, {2, 2, 1, 2}, {2}},
     [](auto x) { return conv2d(x[0], x[1], x[2], {.padding = {1, 0}}, {Unary::Tanh, {}}); }},
    {"gelu", {{1, 3, 3, 1}, {2, 2, 1, 2}}, [](auto x) { return conv2d(x[0], x[1], {}, {}, {Unary::Gelu, {}}); }},
};
const std::vector<Sample> conv_transpose2d_samples = {
    {"", {{2, 2, 3, 3}, {3, 2, 2, 3}}, [](auto x) { return conv_transpose2d(x[0], x[1]); }},
    {"bias, stride, padding, dilation", {{1, 2, 3, 2}, {2, 3, 2, 2}, {2}},
     [](auto x) { return conv_transpose2d(x[0], x[1], x[2], {skewed}); }},
    {"output padding", {{1, 2, 2, 2}, {2, 2, 1, 2}},
     [](auto x) { return conv_transpose2d(x[0], x[1], {}, {{.stride = {2, 3}}, {1, 2}}); }},
};

const Op conv2d_op{"conv2d", conv2d_samples, Algebra::multilinear};
const Op biased_conv2d_op{"conv2d with bias", conv2d_samples};  // see linear
const Op conv2d_input_gradient_op{"conv2d_input_gradient", conv_transpose2d_samples, Algebra::multilinear};
const Op conv2d_weight_gradient_op{"conv2d_weight_gradient", conv2d_samples, Algebra::multilinear};
const Op conv_transpose2d_op{"conv_transpose2d", conv_transpose2d_samples, Algebra::multilinear};
const Op unfold_op{"unfold", {
    {"", {{2, 3, 3, 2}}, [](auto x) { return unfold(x[0], {2, 2}); }},
    {"all options", {{1, 4, 3, 2}}, [](auto x) { return unfold(x[0], {2, 3}, skewed); }},
}, Algebra::linear};
const Op fold_op{"fold", {
    {"", {{2, 2, 2, 4, 2}}, [](auto x) { return fold(x[0], {3, 3}, {2, 2}); }},
    {"all options", {{1, 3, 3, 6, 2}}, [](auto x) { return fold(x[0], {4, 3}, {2, 3}, skewed); }},
}, Algebra::linear};
const Sliding overlapping = {.stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 1}};
const std::vector<Sample> max_pool2d_samples = {
    {"", {{1, 4, 4, 2}}, [](auto x) { return max_pool2d(x[0], {2, 2}); }},
    {"overlapping, padded", {{1, 3, 4, 2}}, [](auto x) { return max_pool2d(x[0], {2, 3}, overlapping); }},
};
const Op max_pool2d_op{"max_pool2d", max_pool2d_samples};
const Op max_pool2d_pullback_op{"max_pool2d_pullback", max_pool2d_samples, Algebra::linear};
const Op max_pool2d_tangent_op{"max_pool2d_tangent", max_pool2d_samples, Algebra::linear};
const Op average_pool2d_op{"average_pool2d", {
    {"", {{1, 4, 4, 2}}, [](auto x) { return average_pool2d(x[0], {2, 2}); }},
    {"overlapping, padded", {{1, 3, 4, 2}}, [](auto x) { return average_pool2d(x[0], {2, 3}, overlapping); }},
}, Algebra::linear};
const Op upsample_nearest_op{"upsample_nearest", {
    {"", {{2, 2, 3, 2}}, [](auto x) { return upsample_nearest(x[0], 2); }},
}, Algebra::linear};
// clang-format on

void check_images(const Op& op, const Var& x) {
  check_floating(op, x);
  require(x.shape().rank() == 4, op.name, ": images must be (batch, height, width, channels), not ", x.shape());
}

// Limits sizes, strides and the like, so that no sum or product of two of them overflows.
void check_limit(const Op& op, std::initializer_list<YX> numbers) {
  constexpr int64_t limit = int64_t{1} << 30;
  for (const YX n : numbers)
    require(n.y <= limit && n.x <= limit, op.name, ": ", n, " is too large; ", limit, " is the most in images");
}

int64_t reach(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

// Checks the options. The caller sets the size of the image, the number of windows, and the channels.
Convolution geometry(const Op& op, YX kernel, const Sliding& s) {
  require(kernel.y > 0 && kernel.x > 0, op.name, ": a kernel of ", kernel);
  const bool moves = s.stride.y > 0 && s.stride.x > 0 && s.dilation.y > 0 && s.dilation.x > 0;
  require(moves && s.padding.y >= 0 && s.padding.x >= 0, op.name, ": stride ", s.stride, ", padding ", s.padding,
          ", dilation ", s.dilation);
  check_limit(op, {kernel, s.stride, s.padding, s.dilation});
  Convolution c{};
  c.kernel_height = kernel.y;
  c.kernel_width = kernel.x;
  c.stride_y = s.stride.y;
  c.stride_x = s.stride.x;
  c.pad_y = s.padding.y;
  c.pad_x = s.padding.x;
  c.dilation_y = s.dilation.y;
  c.dilation_x = s.dilation.x;
  return c;
}

// The same for an image of this size.
Convolution over(const Op& op, YX size, YX kernel, const Sliding& s) {
  Convolution c = geometry(op, kernel, s);
  check_limit(op, {size});
  const int64_t spare_y = size.y + 2 * c.pad_y - reach(kernel.y, c.dilation_y);
  const int64_t spare_x = size.x + 2 * c.pad_x - reach(kernel.x, c.dilation_x);
  require(spare_y >= 0 && spare_x >= 0, op.name, ": a kernel of ", kernel, " with dilation ", s.dilation,
          " is larger than an image of ", size, " with padding ", s.padding);
  c.height = size.y;
  c.width = size.x;
  c.out_height = spare_y / c.stride_y + 1;
  c.out_width = spare_x / c.stride_x + 1;
  return c;
}

Convolution over(const Op& op, const Var& x, YX kernel, const Sliding& s) {
  check_images(op, x);
  Convolution c = over(op, {x.shape()[1], x.shape()[2]}, kernel, s);
  c.batch = x.shape()[0];
  c.channels = x.shape()[3];
  return c;
}

void check_weights(const Op& op, const Var& x, const Var& w, int input_axis) {
  check_images(op, x);
  require(w.shape().rank() == 4 && w.shape()[input_axis] == x.shape()[3] && w.dtype() == x.dtype(), op.name,
          ": weights ", w.dtype(), " ", w.shape(), " do not fit images ", x.dtype(), " ", x.shape());
  check_one_device(op, x.device(), w.device());
}

// Three bilinear maps, which are adjoints of each other: y of (x, w), dx of (g, w), dw of (x, g).
Var input_gradient(const Convolution& c, const Var& g, const Var& w);
Var weight_gradient(const Convolution& c, const Var& x, const Var& g);

Var convolution(const Convolution& c, const Var& x, const Var& w, const Var& bias = {}, Activation activation = {}) {
  Tensor y({c.batch, c.out_height, c.out_width, c.out_channels}, x.dtype(), x.device());
  backend(x.device()).convolve(c, x.value(), w.value(), {bias.defined() ? &bias.value() : nullptr, activation}, y);
  return record(bias.defined() ? biased_conv2d_op : conv2d_op, y,
                from(x, [=](const Var& g) { return input_gradient(c, g, w); }),
                from(w, [=](const Var& g) { return weight_gradient(c, x, g); }),
                from(bias, [](const Var& g) { return sum_outside(g, -1); }));
}
Var input_gradient(const Convolution& c, const Var& g, const Var& w) {
  Tensor dx({c.batch, c.height, c.width, c.channels}, g.dtype(), g.device());
  backend(g.device()).convolve_input_gradient(c, g.value(), w.value(), dx);
  return record(conv2d_input_gradient_op, dx, from(g, [=](const Var& h) { return convolution(c, h, w); }),
                from(w, [=](const Var& h) { return weight_gradient(c, h, g); }));
}
Var weight_gradient(const Convolution& c, const Var& x, const Var& g) {
  Tensor dw = memory_for_result(g, {c.kernel_height, c.kernel_width, c.channels, c.out_channels});
  backend(g.device()).convolve_weight_gradient(c, x.value(), g.value(), dw);
  return record(conv2d_weight_gradient_op, dw, from(x, [=](const Var& h) { return input_gradient(c, g, h); }),
                from(g, [=](const Var& h) { return convolution(c, x, h); }));
}

Var unfolded(const Convolution& c, const Var& x);
Var folded(const Convolution& c, const Var& windows) {
  Tensor y({c.batch, c.height, c.width, c.channels}, windows.dtype(), windows.device());
  backend(y.device()).fold(c, windows.value(), y);
  return record(fold_op, y, from(windows, [=](const Var& g) { return unfolded(c, g); }));
}
Var unfolded(const Convolution& c, const Var& x) {
  Tensor y({c.batch, c.out_height, c.out_width, c.kernel_height * c.kernel_width, c.channels}, x.dtype(), x.device());
  backend(y.device()).unfold(c, x.value(), y);
  return record(unfold_op, y, from(x, [=](const Var& g) { return folded(c, g); }));
}

// The derivative of max_pool2d at x, and its adjoint. Both are linear: which pixels attain the maxima y is constant.
Var max_pool_tangent(const Convolution& c, const Var& x, const Var& y, const Var& dx);
Var max_pool_pullback(const Convolution& c, const Var& x, const Var& y, const Var& g) {
  Tensor dx(x.shape(), x.dtype(), x.device());
  backend(x.device()).max_pool_pullback(c, x.value(), y.value(), g.value(), dx);
  return record(max_pool2d_pullback_op, dx, from(g, [=](const Var& h) { return max_pool_tangent(c, x, y, h); }),
                data(x));
}
Var max_pool_tangent(const Convolution& c, const Var& x, const Var& y, const Var& dx) {
  Tensor dy(y.shape(), y.dtype(), y.device());
  backend(y.device()).max_pool_tangent(c, x.value(), y.value(), dx.value(), dy);
  return record(max_pool2d_tangent_op, dy, from(dx, [=](const Var& g) { return max_pool_pullback(c, x, y, g); }),
                data(x));
}

}  // namespace

Var conv2d(const Var& x, const Var& w, const Var& bias, const Sliding& sliding, Activation activation) {
  check_weights(conv2d_op, x, w, 2);
  Convolution c = over(conv2d_op, x, {w.shape()[0], w.shape()[1]}, sliding);
  c.out_channels = w.shape()[3];
  if (bias.defined())
    require(bias.shape() == Shape{c.out_channels} && bias.dtype() == x.dtype() && bias.device() == x.device(),
            "conv2d: the bias must be ", x.dtype(), " (", c.out_channels, ") on ", x.device(), ", not ", bias.dtype(),
            " ", bias.shape(), " on ", bias.device());
  const bool fused = saves(activation.op) != Saves::input;  // as in `linear`
  const Var y = convolution(c, x, w, bias, fused ? activation : Activation{});
  return fused ? activate_fused(y, activation) : activate(y, activation);
}

Var conv_transpose2d(const Var& x, const Var& w, const Var& bias, const SlidingBack& sliding) {
  check_weights(conv_transpose2d_op, x, w, 3);
  const YX extra = sliding.output_padding;
  Convolution c = geometry(conv_transpose2d_op, {w.shape()[0], w.shape()[1]}, sliding);
  require(extra.y >= 0 && extra.x >= 0 && extra.y < c.stride_y && extra.x < c.stride_x,
          "conv_transpose2d: output padding ", extra, " must be below the stride ", sliding.stride);
  check_limit(conv_transpose2d_op, {{x.shape()[1], x.shape()[2]}});
  c.batch = x.shape()[0];
  c.out_height = x.shape()[1];
  c.out_width = x.shape()[2];
  c.out_channels = x.shape()[3];
  c.channels = w.shape()[2];
  c.height = (c.out_height - 1) * c.stride_y - 2 * c.pad_y + reach(c.kernel_height, c.dilation_y) + extra.y;
  c.width = (c.out_width - 1) * c.stride_x - 2 * c.pad_x + reach(c.kernel_width, c.dilation_x) + extra.x;
  require(c.height > 0 && c.width > 0, "conv_transpose2d: nothing is left of ", x.shape(), " inside padding ",
          sliding.padding);
  const Var y = input_gradient(c, x, w);
  return bias.defined() ? add_along(y, bias, -1) : y;
}

Var unfold(const Var& x, YX kernel, const Sliding& sliding) { return unfolded(over(unfold_op, x, kernel, sliding), x); }

Var fold(const Var& windows, YX size, YX kernel, const Sliding& sliding) {
  check_floating(fold_op, windows);
  const Shape& shape = windows.shape();
  Convolution c = over(fold_op, size, kernel, sliding);
  require(shape.rank() == 5 && shape[1] == c.out_height && shape[2] == c.out_width && shape[3] == kernel.y * kernel.x,
          "fold: windows must be (batch, ", c.out_height, ", ", c.out_width, ", ", kernel.y * kernel.x,
          ", channels), not ", shape);
  c.batch = shape[0];
  c.channels = shape[4];
  return folded(c, windows);
}

Var max_pool2d(const Var& x, YX kernel, const Sliding& sliding) {
  const Convolution c = over(max_pool2d_op, x, kernel, sliding);
  const YX by = sliding.padding;
  require(by.y < reach(kernel.y, sliding.dilation.y) && by.x < reach(kernel.x, sliding.dilation.x),
          "max_pool2d: padding ", by, " leaves windows of ", kernel, " empty");
  Tensor y({c.batch, c.out_height, c.out_width, c.channels}, x.dtype(), x.device());
  backend(x.device()).max_pool(c, x.value(), y);
  return record(max_pool2d_op, y, from(x, [=](const Var& g, const Var& y) { return max_pool_pullback(c, x, y, g); }));
}

Var average_pool2d(const Var& x, YX kernel, const Sliding& sliding) {
  return mean(unfolded(over(average_pool2d_op, x, kernel, sliding), x), 3);
}

Var upsample_nearest(const Var& x, int64_t factor) {
  check_images(upsample_nearest_op, x);
  const Shape& s = x.shape();
  require(factor > 0, "upsample_nearest: by a factor of ", factor);
  const Var squares = repeat(repeat(x, 2, factor), 4, factor);  // an error if the result is too large
  return reshape(squares, {s[0], s[1] * factor, s[2] * factor, s[3]});
}

}  // namespace weft
