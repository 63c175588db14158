#pragma once
// Ops on images: (batch, height, width, channels), the channels innermost, so that a pixel is a row.
#include "engine/backend.h"
#include "engine/tape.h"

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
  YX output_padding = {0, 0};   // further rows and columns at the far sides; below the stride
};

// activation(x * w + bias): w is (kernel height, kernel width, channels, out channels), bias (out channels) or empty.
Var conv2d(const Var& x, const Var& w, const Var& bias = {}, const Sliding& sliding = {}, Activation activation = {});

// The adjoint of a conv2d with this w, plus a bias: x has w's last axis for channels, the result the one before it.
Var conv_transpose2d(const Var& x, const Var& w, const Var& bias = {}, const SlidingBack& sliding = {});

// Every window's pixels: (batch, out height, out width, kernel height * kernel width, channels), zeros outside.
Var unfold(const Var& x, YX kernel, const Sliding& sliding = {});
// Its adjoint: windows of an image of this size, each pixel the sum of its copies.
Var fold(const Var& windows, YX size, YX kernel, const Sliding& sliding = {});

// The stride is the kernel unless given. Equal maxima share the gradient equally, and padding never wins. The average
// counts the zeros of the padding.
Var max_pool2d(const Var& x, YX kernel, const Sliding& sliding);
Var average_pool2d(const Var& x, YX kernel, const Sliding& sliding);
inline Var max_pool2d(const Var& x, YX kernel) { return max_pool2d(x, kernel, {.stride = kernel}); }
inline Var average_pool2d(const Var& x, YX kernel) { return average_pool2d(x, kernel, {.stride = kernel}); }

Var upsample_nearest(const Var& x, int64_t factor);  // each pixel becomes a square

}  // namespace weft
