// SPDX-License-Identifier: Apache-2.0
// The nearest code of every row. gemm computes scores, and only the two best of each row are kept while they are in
// cache.
#include "weft/engine/kernels/nearest_code.h"

#include <vector>

#include "weft/engine/kernels/cpu/cpu_backend.h"
#include "weft/engine/kernels/cpu/products/gemm.h"
#include "weft/engine/kernels/cpu/row_fold.h"
#include "weft/engine/kernels/cpu/widen.h"

namespace weft {
namespace cpu {
namespace {

// The size of a block of scores. With the packed codes it fills half of an L2 of 1 MB.
constexpr int64_t rows_at_once = 63, codes_at_once = 1024;

// The two best scores of a row, or of each lane.
template <class Score, class Index> struct TwoBest {
  Score best, second;
  Index index;

  // These become the minimum and maximum instructions. They give b if a is NaN, so a NaN is never kept.
  static Score larger(Score a, Score b) { return a > b ? a : b; }
  static Score smaller(Score a, Score b) { return a < b ? a : b; }

  [[gnu::always_inline]] void consider(Score score, Index at) {
    index = score > best ? at : index;
    second = larger(smaller(best, score), second);
    best = larger(score, best);
  }
  [[gnu::always_inline]] void consider(const TwoBest& other) {
    consider(other.best, other.index);
    second = larger(other.second, second);
  }
};
template <class T> using RowBest = TwoBest<T, int64_t>;
template <class T> constexpr T no_score = -std::numeric_limits<T>::infinity();

template <class T> struct IntegersOf;
template <> struct IntegersOf<float> { typedef int32_t type __attribute__((vector_size(vector_bytes))); };
template <> struct IntegersOf<double> { typedef int64_t type __attribute__((vector_size(vector_bytes))); };
template <class T> using Integers = typename IntegersOf<T>::type;

// Lane i gets the value of lane i + distance.
template <int distance, class V, int... i> V rotated(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i + distance) % int(sizeof...(i))...);
}
template <int distance, class T, class V> V rotated(V v) {
  return rotated<distance>(v, std::make_integer_sequence<int, lanes<T>>{});
}
// Calls combine(distance) for the distances that combine every lane with all others.
template <class T, int distance = lanes<T> / 2, class F> void over_lanes(const F& combine) {
  combine(std::integral_constant<int, distance>{});
  if constexpr (distance > 1) over_lanes<T, distance / 2>(combine);
}

template <class T> void consider_all(const T* scores, int64_t first, int64_t count, RowBest<T>& row_bests) {
  TwoBest<Vector<T>, Integers<T>> lane{broadcast(no_score<T>), broadcast(no_score<T>), {}};
  Integers<T> here{};
  for (int i = 0; i < lanes<T>; ++i) here[i] = i;
  int64_t j = 0;
  for (; j + lanes<T> <= count; j += lanes<T>, here += lanes<T>) lane.consider(load(scores + j), here);
  over_lanes<T>([&](auto distance) {
    lane.consider(
        {rotated<distance, T>(lane.best), rotated<distance, T>(lane.second), rotated<distance, T>(lane.index)});
  });
  row_bests.consider({lane.best[0], lane.second[0], first + lane.index[0]});
  for (; j < count; ++j) row_bests.consider(scores[j], first + j);
}

template <class T> double norm(const T* x, int64_t width) {
  return std::sqrt(static_cast<double>(folded_sum<T>(0, width, [x](auto at) { return at(x) * at(x); })));
}

// A codebook in parts that are packed for multiplication.
template <class T> class Codes {
 public:
  Codes(const T* codes, int64_t count, int64_t width) : codes_(codes), count_(count), width_(width), bias_(count) {
    T* bias = bias_;
    for (int64_t j = 0; j < count; ++j) {
      const double norm = cpu::norm(codes + j * width, width);
      bias[j] = static_cast<T>(-norm * norm / 2);
      if (norm > largest_norm_) largest_norm_ = norm;
    }
    const auto parts = static_cast<size_t>((count + codes_at_once - 1) / codes_at_once);
    if (packed().size() < parts) packed().resize(parts);
    for_parts([&](PackedB<T>& part, int64_t first, int64_t count) {
      part.pack(true, count, width, codes + first * width, width);
    });
  }

  double largest_norm() const { return largest_norm_; }

  // Finds each row's two best scores.
  void search(const T* x, int64_t rows, RowBest<T>* row_bests) const {
    const Temporary<T> scores(rows_at_once * codes_at_once);
    for_parts([&](const PackedB<T>& part, int64_t first, int64_t) {
      for (int64_t row = 0; row < rows; row += rows_at_once) {
        Piece piece{row_bests + row, first};
        multiply(x + row * width_, std::min(rows_at_once, rows - row), part, first, scores, &piece);
      }
    });
  }

  // The exact search among codes whose score is not below `threshold`.
  int64_t nearest(const T* x, double threshold) const {
    const Temporary<T> memory(codes_at_once);
    T* scores = memory;
    double least = std::numeric_limits<double>::infinity();
    int64_t found = 0;
    for_parts([&](const PackedB<T>& part, int64_t first, int64_t count) {
      multiply(x, 1, part, first, scores, nullptr);
      for (int64_t j = 0; j < count; ++j) {
        if (static_cast<double>(scores[j]) < threshold) continue;
        const double distance = squared_distance(x, codes_ + (first + j) * width_, width_);
        if (distance < least) least = distance, found = first + j;
      }
    });
    return found;
  }

 private:
  struct Piece {
    RowBest<T>* row_bests;
    int64_t first;
    static void take(void* context, T* scores, int64_t row, int64_t column, int64_t count) {
      const Piece& piece = *static_cast<const Piece*>(context);
      consider_all(scores, piece.first + column, count, piece.row_bests[row]);
    }
  };

  void multiply(const T* x, int64_t rows, const PackedB<T>& part, int64_t first, T* scores, Piece* piece) const {
    Epilogue<T> epilogue;
    epilogue.bias = bias_ + first;
    if (piece) epilogue.finish = Piece::take, epilogue.context = piece;
    gemm(false, rows, x, width_, part, scores, part.n(), epilogue);
  }

  // Kept between calls, like all scratch memory.
  static std::vector<PackedB<T>>& packed() {
    thread_local std::vector<PackedB<T>> parts;
    return parts;
  }
  template <class F> void for_parts(const F& visit) const {
    for (int64_t first = 0; first < count_; first += codes_at_once)
      visit(packed()[static_cast<size_t>(first / codes_at_once)], first, std::min(codes_at_once, count_ - first));
  }

  const T* codes_;
  int64_t count_, width_;
  Temporary<T> bias_;
  double largest_norm_ = 0;
};

template <class T>
void nearest_rows(int64_t rows, int64_t count, int64_t width, const T* x, const T* table, int64_t* indices) {
  const Codes<T> codes(table, count, width);
  const Temporary<RowBest<T>> memory(rows);
  RowBest<T>* row_bests = memory;
  std::fill_n(row_bests, rows, RowBest<T>{no_score<T>, no_score<T>, 0});
  codes.search(x, rows, row_bests);
  const ScoreError error(precision_of<T>, width);
  for (int64_t i = 0; i < rows; ++i) {
    const T* row = x + i * width;
    const double margin = 2 * error(norm(row, width), codes.largest_norm());
    const double best = static_cast<double>(row_bests[i].best);
    const bool clear = best - static_cast<double>(row_bests[i].second) > margin;
    indices[i] = clear ? row_bests[i].index : codes.nearest(row, best - margin);
  }
}

}  // namespace
}  // namespace cpu

void CpuBackend::nearest_rows(const Tensor& x, const Tensor& codes, Tensor& indices) {
  visit_floating(x.dtype(), [&]<class T>() {
    cpu::nearest_rows<Compute<T>>(x.shape()[0], codes.shape()[0], x.shape()[1], cpu::Input<T>(x), cpu::Input<T>(codes),
                                  indices.mutate<int64_t>());
  });
}

}  // namespace weft
