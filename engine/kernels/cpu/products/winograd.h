// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions by 3 x 3 with fewer multiplications: 16 for each square of 2 x 2 outputs and each pair of channels, in
// place of 36. This is the algorithm F(2 x 2, 3 x 3) of Lavin and Gray (arXiv 1509.09308). Squares of 4 x 4 inputs, and
// the weights, are transformed to 16 matrices each. The products of these are transformed back:
//
//   y = out(in(x) * spread(w))     dx = the same of g and the turned weights     dw = spread'(in(x)' * out'(g))
//
// where f' is the adjoint of f. The transforms add and halve. Rounding errors are 1 to 2 times those of sums over taps
// (f32: 2e-7 to 5e-7 of the result's own size). Where a pixel's window is zero, its result is exactly zero; transforms
// of larger tiles leave a rounding error there. What an image gives does not depend on the other images, and has the
// same bits on every kind of CPU.

#include "weft/engine/kernels/convolution_shape.h"
#include "weft/engine/kernels/cpu/products/gemm.h"

namespace weft::cpu::winograd {

/// Whether the transforms are worth their time: only for many channels, and sides of whole squares.
bool suits(const Convolution&);

// As those of convolve.h.
template <class T> void forward(const Convolution&, const T* x, const T* w, T* y, const Epilogue<T>&);
template <class T> void input_gradient(const Convolution&, const T* g, const T* w, T* dx, const T* bias);
template <class T> void weight_gradient(const Convolution&, const T* x, const T* g, T* dw);

}  // namespace weft::cpu::winograd
