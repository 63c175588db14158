// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fused kernels on `rows` contiguous rows of length n, for T = float and double. Each call runs on the calling thread.
// Inputs and outputs must not overlap. n = 0 and rows = 0 are allowed. A NaN in a row makes its result NaN.
//
// The order of sums (row_fold.h) depends only on n, so the result of a row depends neither on the number of rows nor on
// the CPU. Rows of more than 4096 elements are summed by halves.
#include <cstdint>

namespace weft::cpu {

// The softmax and log_softmax of a row are NaN if all its elements are -inf, or if one is +inf. Its logsumexp is then
// -inf or +inf.
template <class T> void softmax(int64_t rows, int64_t n, const T* x, T* y);
template <class T> void softmax_pullback(int64_t rows, int64_t n, const T* y, const T* g, T* dx);  // y (g - sum(g y))
template <class T> void log_softmax(int64_t rows, int64_t n, const T* x, T* y);
template <class T> void log_softmax_pullback(int64_t rows, int64_t n, const T* y, const T* g, T* dx);  // g - e^y sum(g)
template <class T> void logsumexp(int64_t rows, int64_t n, const T* x, T* y);  // y has `rows` values

// y = (x - mean) rstd with rstd = 1 / sqrt(variance + epsilon); the variance is that of x - mean, over n.
template <class T> void standardize(int64_t rows, int64_t n, T epsilon, const T* x, T* y, T* rstd);
template <class T> void standardize_pullback(int64_t rows, int64_t n, const T* y, const T* rstd, const T* g, T* dx);

// The mean and rstd of a row.
template <class T> struct Moments { T mean, rstd; };

// y = gamma (x - mean) rstd + beta, then relu if `relu`.
template <class T>
void layer_norm(int64_t rows, int64_t n, T epsilon, bool relu, const T* x, const T* gamma, const T* beta, T* y,
                Moments<T>* moments);
// `rectified` is y after a relu, null if there was none. The gradients of gamma and beta are sums over rows: of
// at most sixteen in their order, and of these sums in pairs, so that errors grow with log rows.
template <class T>
void layer_norm_pullback(int64_t rows, int64_t n, const T* x, const T* gamma, const T* rectified,
                         const Moments<T>* moments, const T* g, T* dx, T* dgamma, T* dbeta);

}  // namespace weft::cpu
