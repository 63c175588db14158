// SPDX-License-Identifier: Apache-2.0
// The steps of optimizers. They are bound by memory, so they take one pass over all tensors.
#include "weft/engine/kernels/exact_parts.h"
#include "weft/engine/kernels/update_formulas.h"

#include <algorithm>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace cpu {
namespace {

template <class F, class T, class... S>
[[gnu::noinline]] void update_loop(const F f, int64_t n, const T* __restrict g, T* __restrict p, S* __restrict... s) {
  for (int64_t i = 0; i < n; ++i) f(g[i], p[i], s[i]...);
}

// bf16 gradients are widened, and new values rounded to bf16, a block at a time.
template <class F, class G, class T, class... S>
void update_run(const F& f, int64_t n, const G* g, T* p, BFloat16* rounded, S*... s) {
  constexpr bool narrow = std::is_same_v<G, BFloat16>;
  if (!narrow && !rounded) {
    if constexpr (!narrow) update_loop(f, n, g, p, s...);
    return;
  }
  T wide[values_in_l1];
  for (int64_t i = 0; i < n; i += values_in_l1) {
    const int64_t count = std::min(values_in_l1, n - i);
    if constexpr (narrow) convert<T>(count, g + i, wide);
    const T* from = wide;
    if constexpr (!narrow) from = g + i;
    update_loop(f, count, from, p + i, s + i...);
    if (rounded) convert<BFloat16>(count, p + i, rounded + i);
  }
}

// The same order as on a card: 32 sums in parallel, then combined in halves.
template <class T> [[gnu::noinline]] double square_sum(int64_t n, const T* x) {
  constexpr int64_t lanes = 32;
  double sums[lanes] = {};
  const auto add = [&sums](int64_t lane, T value) {
    const double wide = static_cast<double>(static_cast<Compute<T>>(value));
    sums[lane] = std::fma(wide, wide, sums[lane]);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane) add(lane, x[i + lane]);
  for (int64_t lane = 0; i + lane < n; ++lane) add(lane, x[i + lane]);
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

template <class T>
[[gnu::noinline]] void add_parts(int64_t n, const T* __restrict x, double* __restrict a, double* __restrict b,
                                 double* __restrict c, double* __restrict d) {
  for (int64_t i = 0; i < n; ++i) {
    const ExactParts parts(static_cast<double>(static_cast<Compute<T>>(x[i])));
    a[i] += parts.at[0];
    b[i] += parts.at[1];
    c[i] += parts.at[2];
    d[i] += parts.at[3];
  }
}

}  // namespace
}  // namespace cpu

void CpuBackend::update(UpdateRule rule, std::span<const UpdateRun> runs, Tensor& value, std::span<Tensor> slots,
                        Tensor& rounded) {
  BFloat16* const narrow = rounded.defined() ? rounded.mutate<BFloat16>() : nullptr;
  const auto update_in = [&]<class T>() {
    T* const p = value.mutate<T>();
    with_update<T>(rule, slots, [&]<class F, class... S>(S*... s) {
      for (const auto& [gradient, first, scalars] : runs) {
        BFloat16* const to = narrow ? narrow + first : nullptr;
        if (gradient.dtype() == DType::bf16)
          cpu::update_run(F(scalars), gradient.size(), gradient.template data<BFloat16>(), p + first, to, s + first...);
        else
          cpu::update_run(F(scalars), gradient.size(), gradient.template data<T>(), p + first, to, s + first...);
      }
    });
  };
  value.dtype() == DType::f64 ? update_in.operator()<double>() : update_in.operator()<float>();
}

void CpuBackend::square_sums(std::span<const SquareSumsRun> runs, Tensor& sums) {
  constexpr int64_t block = SquareSumsRun::block;
  for (const SquareSumsRun& run : runs)
    visit_floating(run.x.dtype(), [&]<class T>() {
      const T* x = run.x.data<T>();
      double* sum = sums.mutate<double>() + run.sum;
      for (int64_t i = 0, next; i < run.x.size(); i = next) {
        next = std::min(run.x.size(), ((run.begin + i) / block + 1) * block - run.begin);
        *sum++ = cpu::square_sum(next - i, x + i);
      }
    });
}

void CpuBackend::add_exact_parts(std::span<const ExactRun> runs, Tensor& sums) {
  const int64_t each = sums.size() / 4;
  for (const ExactRun& run : runs) {
    double* const to = sums.mutate<double>() + run.first;
    visit_floating(run.x.dtype(), [&]<class T>() {
      cpu::add_parts(run.x.size(), run.x.data<T>(), to, to + each, to + 2 * each, to + 3 * each);
    });
  }
}

void CpuBackend::add_exact_rows(const Tensor& x, const Indices& indices, Tensor& sums, Tensor& counts) {
  if (indices.size() == 0) return;
  const int64_t* const index = indices.on_host();
  const int64_t length = x.size() / indices.size(), each = counts.size() * length;
  double *const all = sums.mutate<double>(), *const count = counts.mutate<double>();
  visit_floating(x.dtype(), [&]<class T>() {
    const T* row = x.data<T>();
    for (int64_t i = 0; i < indices.size(); ++i, row += length) {
      double* const to = all + index[i] * length;
      cpu::add_parts(length, row, to, to + each, to + 2 * each, to + 3 * each);
      ++count[index[i]];
    }
  });
}

void CpuBackend::exact_total(const Tensor& parts, Tensor& y) {
  const double* from = parts.data<double>();
  const int64_t n = y.size();
  const auto total = [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(ExactParts::total(from, n, i));
  };
  y.dtype() == DType::f64 ? total(y.mutate<double>()) : total(y.mutate<float>());
}

}  // namespace weft
