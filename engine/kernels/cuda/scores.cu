// SPDX-License-Identifier: Apache-2.0
// Sums over scores and their gradients. cuBLAS multiplies as many rows of q with all of k as fit into a tile; then one
// kernel reads it for the sums of rows, one for those of columns, and one for slopes. The host never reads scores, so
// nothing waits for the card.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/score_tiles.cuh"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t tile_bytes = int64_t{256} << 20;  // at least one row

template <class F> void visit_wide(DType type, const F& f) {
  type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}
DType wide(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// The inputs of the scores, and the tile that their scores fill, some rows at a time. Scores of bf16 rows are f32, in
// which the products of two values are exact.
class Tiles {
 public:
  explicit Tiles(const Scores& z)
      : q(z.q),
        k(z.k),
        scale(z.scale.to(wide(z.q.dtype()))),
        factors(Tensor::zeros({2}, scale.dtype(), Device::cuda)),
        targets(z.targets ? *z.targets : Tensor()),
        shift_(z.shift ? z.shift->to(scale.dtype()) : Tensor()),
        excluded_(z.excluded ? *z.excluded : Tensor()) {
    factors.slice(0, 1).copy_from(scale.reshape({1}));
  }

  const Tensor q, k, scale, factors, targets;  // targets may be undefined

  int64_t m() const { return q.shape()[0]; }
  int64_t n() const { return k.shape()[0]; }
  bool empty() const { return m() == 0 || n() == 0; }
  int64_t height() const {  // rows of a tile
    return std::clamp<int64_t>(tile_bytes / (n() * static_cast<int64_t>(size_of(scale.dtype()))), 1, m());
  }
  const int64_t* targets_from(int64_t row) const { return targets.defined() ? targets.data<int64_t>() + row : nullptr; }

  // Calls multiply(rows of q, scores) and then visit(row, scores) for all rows, a tile at a time.
  template <class Multiply, class Visit> void for_each(const Multiply& multiply, const Visit& visit) const {
    const Tensor memory({height(), n()}, scale.dtype(), Device::cuda);
    for (int64_t row = 0; row < m(); row += height()) {
      Tensor scores = memory.slice(0, std::min(height(), m() - row));
      multiply(q.slice(row, row + scores.shape()[0]), scores);
      visit_wide(q.dtype(), [&]<class C>() { finish<C>(row, scores); });
      visit(row, scores);
    }
  }

 private:
  template <class C> void finish(int64_t row, Tensor& scores) const {
    C* const z = scores.mutate<C>();
    if (shift_.defined()) map(scores.size(), PlusShift<C>{shift_.data<C>()}, z, static_cast<const C*>(z));
    if (!excluded_.defined()) return;
    const int64_t per_row = excluded_.shape()[1];
    const int64_t* const columns = excluded_.data<int64_t>() + row * per_row;
    cuda::for_each(scores.shape()[0] * per_row, Exclude<C>{n(), per_row, columns, z});
  }

  const Tensor shift_, excluded_;
};

// Computes the derivatives with respect to the scores of a tile.
template <class C> class SlopesOf {
 public:
  SlopesOf(ScoreSum kind, const Tiles& tiles, const Tensor& sums, const Tensor& g)
      : kind_(kind),
        tiles_(tiles),
        count_(tiles.m() + (kind == ScoreSum::log_sum_exp_both ? tiles.n() : 0)),
        shifts_(count_),
        factors_(count_),
        all_{shifts_.data(), factors_.data(), sums.data<double>(), g.data<double>()} {
    for_each(count_, PrepareSlopes<C>{kind != ScoreSum::softplus, all_.sums, all_.g, shifts_.data(), factors_.data()});
  }

  template <class To> void operator()(int64_t row, const Tensor& scores, const To& to) const {
    const int64_t m = tiles_.m(), n = tiles_.n();
    const auto run = [&]<ScoreSum kind>() {
      for_each_row(scores.shape()[0], n,
                   Slopes<kind, C, To>{n, tiles_.targets_from(row), all_.from(row), all_.from(m),
                                       all_.from(count_ + row), scores.data<C>(), to});
    };
    using enum ScoreSum;
    switch (kind_) {
      case log_sum_exp: return run.template operator()<log_sum_exp>();
      case log_sum_exp_both: return run.template operator()<log_sum_exp_both>();
      case softplus: return run.template operator()<softplus>();
    }
  }

 private:
  const ScoreSum kind_;
  const Tiles& tiles_;
  const int64_t count_;  // the number of sums; the scores of targets follow them
  const Scratch<C> shifts_, factors_;
  const SumsAndSlopes<C> all_;
};

// From the sums over all tiles, which are before scaling: d scale is the sum over rows of q (dz k).
void finish(Backend& device, const Tiles& tiles, Tensor& dq, Tensor& dk, const Tensor& dshift, ScoreGradients& to) {
  if (to.shift.defined()) device.cast(dshift, to.shift);
  if (to.scale.defined()) {
    Tensor products = Tensor::like(dq), sum({}, dq.dtype(), Device::cuda);
    device.binary(Binary::Multiply, tiles.q.to(dq.dtype()), dq, products);
    device.reduce(Reduction::sum, products, Along(1, dq.size(), 1), sum);
    device.cast(sum, to.scale);
  }
  const auto scaled = [&](Tensor& slope, Tensor& result) {
    if (!result.defined()) return;
    device.binary_along(Binary::Multiply, slope, tiles.scale, Along(1, 1, slope.size()), slope);
    device.cast(slope, result);
  };
  scaled(dq, to.q);
  scaled(dk, to.k);
}

}  // namespace
}  // namespace cuda

void CudaBackend::score_sums(ScoreSum kind, const Scores& z, Tensor& sums) {
  const cuda::Tiles tiles(z);
  const bool both = kind == ScoreSum::log_sum_exp_both;
  const int64_t m = tiles.m(), n = tiles.n(), first_target = m + (both ? n : 0);
  const bool softplus = kind == ScoreSum::softplus;
  Tensor of_targets = sums.slice(first_target, sums.size());
  fill(softplus ? 0 : -std::numeric_limits<double>::infinity(), sums);
  fill(0, of_targets);
  if (tiles.empty()) return;
  const auto multiply = [&](const Tensor& rows, Tensor& scores) {
    products_of_rows(rows, tiles.k, tiles.factors, scores);
  };
  cuda::visit_wide(tiles.q.dtype(), [&]<class C>() {
    const cuda::Columns<C> columns(tiles.height(), both ? n : 0);
    double* const to = sums.mutate<double>();
    tiles.for_each(multiply, [&](int64_t row, const Tensor& scores) {
      const int64_t rows = scores.shape()[0];
      const auto run = [&]<ScoreSum of>() {
        cuda::for_each_row(
            rows, n,
            cuda::SumRow<of, C>{n, scores.data<C>(), tiles.targets_from(row), to + row, to + first_target + row});
      };
      softplus ? run.template operator()<ScoreSum::softplus>() : run.template operator()<ScoreSum::log_sum_exp>();
      if (both) columns.add(row, rows, scores.data<C>());
    });
    if (both) columns.finish(to + m);
  });
}

// cuBLAS multiplies values of one type, so the slopes of bf16 rows are two values of bf16 each. The result has 8 bits.
void CudaBackend::score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                                  ScoreGradients& to) {
  const cuda::Tiles tiles(z);
  const Tensor &q = tiles.q, &k = tiles.k;
  const auto zeros = [&](const Shape& shape) { return Tensor::zeros(shape, tiles.scale.dtype(), Device::cuda); };
  Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dshift = zeros({}), part = zeros({});
  const auto multiply = [&](const Tensor& rows, Tensor& scores) { products_of_rows(rows, k, tiles.factors, scores); };
  const auto add_products = [&](const Tensor& slopes, int64_t row, int64_t end) {
    Tensor rows = dq.slice(row, end);
    if (to.q.defined() || to.scale.defined()) add_product(slopes, false, k, rows);
    if (to.k.defined()) add_product(slopes, true, q.slice(row, end), dk);
  };
  const auto walk = [&]<class X>() {
    using C = Compute<X>;
    const cuda::SlopesOf<C> slopes_of(kind, tiles, sums, g);
    tiles.for_each(multiply, [&](int64_t row, Tensor& scores) {
      const int64_t end = row + scores.shape()[0];
      if constexpr (!std::is_same_v<X, C>) {
        Tensor rounded(scores.shape(), DType::bf16, Device::cuda), rest = Tensor::like(rounded);
        float* const wide = to.shift.defined() ? scores.mutate<float>() : nullptr;
        slopes_of(row, scores, cuda::InHalves{rounded.mutate<BFloat16>(), rest.mutate<BFloat16>(), wide});
        add_products(rounded, row, end);
        add_products(rest, row, end);
      } else {
        slopes_of(row, scores, cuda::InPlace<C>{scores.mutate<C>()});
        add_products(scores, row, end);
      }
      if (!to.shift.defined()) return;
      reduce(Reduction::sum, scores, Along(1, scores.size(), 1), part);
      accumulate(1, part, dshift);
    });
  };
  if (!tiles.empty()) visit_floating(q.dtype(), walk);
  cuda::finish(*this, tiles, dq, dk, dshift, to);
}

}  // namespace weft
