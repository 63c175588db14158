// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolution on NHWC images with (KH, KW, C, O) weights. The three functions are adjoints of each other, so all their
// derivatives are among them. The result for an image does not depend on the other images of the batch.

#include <cstdint>

#include "weft/engine/kernels/convolution_shape.h"
#include "weft/engine/kernels/cpu/products/gemm.h"

namespace weft::cpu {

/// y[b,oy,ox,o] = sum over ky,kx,c of x[b, oy*stride - pad + ky*dilation, ..., c] * w[ky,kx,c,o]. For the epilogue, y
/// is a (batch * out_height * out_width) x out_channels matrix.
template <class T> void forward(const Convolution&, const T* x, const T* w, T* y, const Epilogue<T>& epilogue = {});

/// dx = the adjoint in x; also the forward of a transposed convolution, hence the bias: one value per channel of x, or
/// null.
template <class T> void input_gradient(const Convolution&, const T* g, const T* w, T* dx, const T* bias = nullptr);

/// dw = the adjoint in w, summed over the images in order.
template <class T> void weight_gradient(const Convolution&, const T* x, const T* g, T* dw);

}  // namespace weft::cpu
