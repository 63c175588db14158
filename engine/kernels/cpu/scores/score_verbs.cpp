// SPDX-License-Identifier: Apache-2.0
// The verbs on scores, which call the kernels of score_kernels.h with the values of tensors.
#include <optional>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/scores/score_kernels.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace {

template <class T> struct Matrix {
  using C = Compute<T>;
  const cpu::Input<T> q, k;
  const cpu::ScoreMatrix<C> scores;

  explicit Matrix(const Scores& z)
      : q(z.q),
        k(z.k),
        scores{z.q.shape()[0],
               z.k.shape()[0],
               z.q.shape()[1],
               q,
               k,
               static_cast<C>(*z.scale.data<T>()),
               z.shift ? static_cast<C>(*z.shift->data<T>()) : C(0),
               z.excluded ? z.excluded->on_host() : nullptr,
               z.excluded ? z.excluded->shape()[1] : 0,
               z.targets ? z.targets->on_host() : nullptr} {}
};

template <class T> class Wanted {
 public:
  explicit Wanted(Tensor& y) {
    if (y.defined()) values_.emplace(y);
  }
  operator Compute<T>*() const { return values_ ? static_cast<Compute<T>*>(*values_) : nullptr; }

 private:
  std::optional<cpu::Output<T>> values_;
};

}  // namespace

void CpuBackend::score_sums(ScoreSum kind, const Scores& z, Tensor& sums) {
  visit_floating(z.q.dtype(), [&]<class T>() { cpu::score_sums(kind, Matrix<T>(z).scores, sums.mutate<double>()); });
}

void CpuBackend::score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                                 ScoreGradients& to) {
  visit_floating(z.q.dtype(), [&]<class T>() {
    using C = Compute<T>;
    const Wanted<T> q(to.q), k(to.k), scale(to.scale), shift(to.shift);
    cpu::score_gradients<C>(kind, Matrix<T>(z).scores, sums.data<double>(), g.data<double>(), {q, k, scale, shift});
  });
}

}  // namespace weft
