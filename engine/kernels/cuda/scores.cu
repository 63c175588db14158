// SPDX-License-Identifier: Apache-2.0
// Sums over scores and their gradients. cuBLAS multiplies some rows of q with some of k into a tile; then one kernel
// reads it for the sums of rows, one for those of columns, and one for slopes. The host never reads scores, so nothing
// waits for the card.
//
// Tensor cores multiply values of 16 bits, and add in f32. Where there are enough f32 rows, scores are products of sums
// of halves (halves.cuh), and gradients those of sums of bf16 values (parts.cuh), since slopes differ by any order of
// magnitude: three or six products on tensor cores take less time than one in f32.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/halves.cuh"
#include "weft/engine/kernels/cuda/products.h"
#include "weft/engine/kernels/cuda/score_tiles.cuh"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t products_for_parts = int64_t{1} << 27;

template <class F> void visit_wide(DType type, const F& f) {
  type == DType::f64 ? f.template operator()<double>() : f.template operator()<float>();
}
DType wide(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// Of the products, and of what their memory holds before.
template <class C> struct Factors {
  const C* scale;
  C* factors;
  WEFT_HD void operator()(int64_t i) const { factors[i] = i == 0 ? *scale : C(0); }
};

// What belongs to a tile's rows, or columns.
Tensor rows_of(const Tensor& x, const Tile& tile) { return x.slice(tile.row, tile.row + tile.rows); }
Tensor columns_of(const Tensor& x, const Tile& tile) { return x.slice(tile.column, tile.column + tile.columns); }

// The inputs of the scores, and the tiles of these, one at a time. Scores of bf16 rows are f32.
class Tiles {
 public:
  Tiles(const Scores& z, bool tf32)
      : q(z.q),
        k(z.k),
        tf32(tf32),
        in_parts(q.dtype() == DType::f32 && !tf32 && m() * n() * q.shape()[1] >= products_for_parts),
        scale(z.scale.to(wide(z.q.dtype()))),
        targets(checked(z.targets)),
        factors_({2}, scale.dtype(), Device::cuda),
        shift_(z.shift ? z.shift->to(scale.dtype()) : Tensor()),
        excluded_(checked(z.excluded)),
        excluded_per_row_(z.excluded ? z.excluded->shape()[1] : 0) {
    if (in_parts) {
      left_.emplace(RowsInHalves::rests_first(q));
      right_.emplace(RowsInHalves::rests_second(k));
      cuda::for_each(
          2, FactorsOfHalves{scale.data<float>(), left_->greatest(), right_->greatest(), factors_.mutate<float>()});
    } else {
      visit_wide(q.dtype(), [&]<class C>() { cuda::for_each(2, Factors<C>{scale.data<C>(), factors_.mutate<C>()}); });
    }
  }

  const Tensor q, k;
  const bool tf32, in_parts;
  const Tensor scale;
  const CheckedIndices targets;  // may be undefined

  int64_t m() const { return q.shape()[0]; }
  int64_t n() const { return k.shape()[0]; }
  bool empty() const { return m() == 0 || n() == 0; }
  // Tiles that stay in half of the second-level cache while their sums are taken; the rest is for rows of q and k.
  Tiling tiling_of_sums() const { return tiling(context().cache_bytes() / 2, 0); }
  // Larger ones, because slopes have more products, each of which reads and writes the gradients of a tile's rows.
  Tiling tiling_of_slopes(int parts) const { return tiling(context().cache_bytes() * 5, parts); }

  // Calls run<type of the scores, number of parts that products need their slopes in, zero if none>().
  template <class F> void visit(const F& run) const {
    if (q.dtype() == DType::f64) return run.template operator()<double, 0>();
    if (q.dtype() == DType::bf16) return run.template operator()<float, 2>();
    in_parts ? run.template operator()<float, parts_of_f32>() : run.template operator()<float, 0>();
  }
  // Calls visit(tile, its scores) for all tiles.
  template <class Visit> void for_each(const Tiling& tiling, const Visit& visit) const {
    const Tensor memory({tiling.rows * tiling.columns}, scale.dtype(), Device::cuda);
    tiling.for_each([&](const Tile& tile) {
      Tensor scores = memory.slice(0, tile.rows * tile.columns).reshape({tile.rows, tile.columns});
      if (in_parts)
        products_of_rows(left_->row(tile.row), right_->row(tile.column), left_->width(), factors_, scores);
      else
        products_of_rows(rows_of(q, tile), columns_of(k, tile), factors_, tf32, scores);
      visit_wide(q.dtype(), [&]<class C>() { finish<C>(tile, scores); });
      visit(tile, scores);
    });
  }

 private:
  Tiling tiling(int64_t bytes, int parts) const {
    const auto of_score = static_cast<int64_t>(size_of(scale.dtype())), of_part = int64_t{sizeof(BFloat16)};
    return {m(), n(), bytes / (of_score + parts * of_part)};
  }
  template <class C> void finish(const Tile& tile, Tensor& scores) const {
    C* const z = scores.mutate<C>();
    if (shift_.defined()) map(scores.size(), PlusShift<C>{shift_.data<C>()}, z, static_cast<const C*>(z));
    if (!excluded_.defined()) return;
    const int64_t per_row = excluded_per_row_;
    cuda::for_each(tile.rows * per_row, Exclude<C>{tile, per_row, excluded_.from(tile.row * per_row), z});
  }
  static CheckedIndices checked(const std::optional<Indices>& columns) {
    return columns ? CheckedIndices(*columns) : CheckedIndices();
  }

  std::optional<RowsInHalves> left_, right_;  // whose products are those of q and k
  Tensor factors_;
  const Tensor shift_;
  const CheckedIndices excluded_;
  const int64_t excluded_per_row_;
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

  template <class To> void operator()(const Tile& tile, const Tensor& scores, const To& to) const {
    const auto run = [&]<ScoreSum kind>() {
      for_each_row(
          tile.rows, tile.columns,
          Slopes<kind, C, To>{tile, tiles_.targets.from(tile.row), all_.from(tile.row),
                              all_.from(tiles_.m() + tile.column), all_.from(count_ + tile.row), scores.data<C>(), to});
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

// The gradients of q and k, before scaling, from the slopes of all scores.
class RowGradients {
 public:
  RowGradients(const Tiles& tiles, bool of_q, bool of_k)
      : tiles_(tiles),
        of_q_(of_q),
        of_k_(of_k),
        q_(factor(tiles.q)),
        k_(factor(tiles.k)),
        dq_(memory(q_)),
        dk_(memory(k_)) {}

  // Those of a tile, of which the first of its rows or columns sets what the others add to. Its slopes may be the part
  // of that number of their sum.
  void add(const Tile& tile, const Tensor& slopes, int part = 0) {
    // Without the products of two small parts.
    const int64_t width = std::min(k_.shape()[1], tiles_.q.shape()[1] * (parts_of_f32 - part));
    Tensor dq = rows_of(dq_, tile), dk = columns_of(dk_, tile);
    const bool adds_to_q = part > 0 || tile.column > 0, adds_to_k = part > 0 || tile.row > 0;
    if (of_q_) product_of_columns(slopes, false, columns_of(k_, tile), width, adds_to_q, tiles_.tf32, dq);
    if (of_k_) product_of_columns(slopes, true, rows_of(q_, tile), width, adds_to_k, tiles_.tf32, dk);
  }
  // Undefined if not wanted.
  Tensor dq() const { return of_q_ ? sum(dq_) : Tensor(); }
  Tensor dk() const { return of_k_ ? sum(dk_) : Tensor(); }

 private:
  Tensor factor(const Tensor& x) const { return tiles_.in_parts ? rows_in_parts(x) : x; }
  Tensor sum(const Tensor& x) const { return tiles_.in_parts ? sum_of_parts(x) : x; }
  Tensor memory(const Tensor& x) const {
    const DType type = tiles_.scale.dtype();
    return tiles_.empty() ? Tensor::zeros(x.shape(), type, Device::cuda) : Tensor(x.shape(), type, Device::cuda);
  }

  const Tiles& tiles_;
  const bool of_q_, of_k_;
  const Tensor q_, k_;  // what is multiplied with slopes
  Tensor dq_, dk_;
};

// Computes a result in its own type, or in a wider one, from which it is rounded.
template <class F> void compute_in(DType type, Backend& device, Tensor& result, const F& compute) {
  if (result.dtype() == type) return compute(result);
  Tensor wide(result.shape(), type, Device::cuda);
  compute(wide);
  device.cast(wide, result);
}

// From the sums over all tiles, which are before scaling: d scale is the sum over rows of q (dz k).
void finish(Backend& device, const Tiles& tiles, const Tensor& dq, const Tensor& dk, const Tensor& dshift,
            ScoreGradients& to) {
  if (to.shift.defined()) device.cast(dshift, to.shift);
  if (to.scale.defined()) {
    Tensor products = Tensor::like(dq);
    device.binary(Binary::Multiply, tiles.q.to(dq.dtype()), dq, products);
    compute_in(dq.dtype(), device, to.scale,
               [&](Tensor& sum) { device.reduce(Reduction::sum, products, Along(1, dq.size(), 1), sum); });
  }
  const auto scaled = [&](const Tensor& slope, Tensor& result) {
    if (!result.defined()) return;
    compute_in(slope.dtype(), device, result, [&](Tensor& y) {
      device.binary_along(Binary::Multiply, slope, tiles.scale, Along(1, 1, slope.size()), y);
    });
  };
  scaled(dq, to.q);
  scaled(dk, to.k);
}

}  // namespace
}  // namespace cuda

void CudaBackend::score_sums(ScoreSum kind, const Scores& z, Tensor& sums) {
  const cuda::Tiles tiles(z, tf32_);
  const bool both = kind == ScoreSum::log_sum_exp_both;
  const int64_t m = tiles.m(), n = tiles.n(), first_target = m + (both ? n : 0);
  const bool softplus = kind == ScoreSum::softplus;
  if (tiles.empty()) {
    Tensor of_targets = sums.slice(first_target, sums.size());
    fill(softplus ? 0 : -std::numeric_limits<double>::infinity(), sums);
    fill(0, of_targets);
    for (const auto& columns : {z.excluded, z.targets})
      if (columns) check_indices(*columns);
    return;
  }
  cuda::visit_wide(tiles.q.dtype(), [&]<class C>() {
    const cuda::Tiling tiling = tiles.tiling_of_sums();
    const cuda::Columns<C> columns(tiling.rows, both ? n : 0);
    const cuda::Scratch<cuda::ExpSum<C>> parts(tiling.rows);
    double* const to = sums.mutate<double>();
    tiles.for_each(tiling, [&](const cuda::Tile& tile, const Tensor& scores) {
      const C* const at = scores.data<C>();
      double* const of_rows = to + tile.row;
      const auto run = [&]<ScoreSum of>() {
        cuda::for_each_row(
            tile.rows, tile.columns,
            cuda::SumRow<of, C>{tile, at, tiles.targets.from(tile.row), parts.data(), of_rows, of_rows + first_target});
      };
      softplus ? run.template operator()<ScoreSum::softplus>() : run.template operator()<ScoreSum::log_sum_exp>();
      if (both) columns.add(tile, at);
    });
    if (both) columns.finish(to + m);
  });
}

// cuBLAS multiplies values of one type, so slopes of bf16 rows are in two parts, which have 16 bits; the result has 8.
void CudaBackend::score_gradients(ScoreSum kind, const Scores& z, const Tensor& sums, const Tensor& g,
                                  ScoreGradients& to) {
  const cuda::Tiles tiles(z, tf32_);
  cuda::RowGradients rows(tiles, to.q.defined() || to.scale.defined(), to.k.defined());
  Tensor dshift = to.shift.defined() ? Tensor::zeros({}, tiles.scale.dtype(), Device::cuda) : Tensor();
  const auto walk = [&]<class C, int parts>() {
    const cuda::SlopesOf<C> slopes_of(kind, tiles, sums, g);
    tiles.for_each(tiles.tiling_of_slopes(parts), [&](const cuda::Tile& tile, Tensor& scores) {
      if constexpr (parts == 0) {
        slopes_of(tile, scores, cuda::InPlace<C>{scores.mutate<C>()});
        rows.add(tile, scores);
      } else {
        cuda::InParts<parts> slopes = {{}, to.shift.defined() ? scores.mutate<C>() : nullptr};
        std::array<Tensor, parts> tensors;
        for (int i = 0; i < parts; ++i) {
          tensors[i] = Tensor(scores.shape(), DType::bf16, Device::cuda);
          slopes.tiles[i] = tensors[i].template mutate<BFloat16>();
        }
        slopes_of(tile, scores, slopes);
        for (int i = 0; i < parts; ++i) rows.add(tile, tensors[i], i);
      }
      if (!to.shift.defined()) return;
      Tensor part = Tensor::like(dshift);
      reduce(Reduction::sum, scores, Along(1, scores.size(), 1), part);
      accumulate(1, part, dshift);
    });
  };
  if (!tiles.empty()) tiles.visit(walk);
  Tensor dq = rows.dq(), dk = rows.dk();
  cuda::finish(*this, tiles, dq, dk, dshift, to);
}

}  // namespace weft
