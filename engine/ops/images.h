// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ops on images (batch, height, width, channels). A pixel is a row of channels.
#include "weft/engine/kernels/backend.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct YX {
  int64_t y, x;
};
inline std::string text(YX p) { return "{" + std::to_string(p.y) + ", " + std::to_string(p.x) + "}"; }

// How a window moves over an image.
struct Sliding {
  YX stride = {1, 1};
  YX padding = {0, 0};  // on both sides
  YX dilation = {1, 1};
};
struct SlidingBack : Sliding {  // of a transposed convolution
  YX output_padding = {0, 0};   // additional rows and columns at the end of each axis; less than the stride
};

// activation(x * w + bias): w is (kernel height, kernel width, channels, out channels), bias (out channels) or empty.
Var conv2d(const Var& x, const Var& w, const Var& bias = {}, const Sliding& sliding = {}, Activation activation = {});

// The adjoint of a conv2d with this w, plus a bias. The channels of x are w's last axis, those of the result the axis
// before it.
Var conv_transpose2d(const Var& x, const Var& w, const Var& bias = {}, const SlidingBack& sliding = {});

// The pixels of every window: (batch, out height, out width, kernel height * kernel width, channels), zeros outside.
Var unfold(const Var& x, YX kernel, const Sliding& sliding = {});
// Its adjoint, for windows of an image of this size: each pixel is the sum of its copies.
Var fold(const Var& windows, YX size, YX kernel, const Sliding& sliding = {});

// The default stride is the kernel. Equal maxima share the gradient equally; padding is never the maximum. The average
// includes the zeros of the padding.
Var max_pool2d(const Var& x, YX kernel, const Sliding& sliding);
Var average_pool2d(const Var& x, YX kernel, const Sliding& sliding);
inline Var max_pool2d(const Var& x, YX kernel) { return max_pool2d(x, kernel, {.stride = kernel}); }
inline Var average_pool2d(const Var& x, YX kernel) { return average_pool2d(x, kernel, {.stride = kernel}); }

Var upsample_nearest(const Var& x, int64_t factor);  // each pixel becomes a square

}  // namespace weft
