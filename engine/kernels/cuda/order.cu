// SPDX-License-Identifier: Apache-2.0
// Verbs along an axis that compare its elements: extremes with their places, and the first k in order.
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/ranked.cuh"
#include "weft/engine/kernels/cuda/shared_runs.cuh"

namespace weft {
namespace cuda {
namespace {

// A value and its index; -1 if there is none. The type is trivial, because it is in shared memory.
template <class T> struct Candidate {
  T value;
  int64_t index;
};
template <class T> __device__ Candidate<T> swap_lanes(Candidate<T> c, int distance) {
  return {cuda::swap_lanes(c.value, distance), cuda::swap_lanes(c.index, distance)};
}
// The better candidate. NaN is the best, and of equal candidates the first is better.
template <bool largest> struct Better {
  template <class T> __device__ Candidate<T> operator()(const Candidate<T>& a, const Candidate<T>& b) const {
    if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (largest ? a.value > b.value : a.value < b.value) return a;
    if (largest ? b.value > a.value : b.value < a.value) return b;
    return a.index < b.index ? a : b;
  }
};
template <bool largest, class T> struct ArgRows {
  const T* x;
  int64_t extent;
  int64_t* y;
  template <class Team> __device__ void operator()(Team team, int64_t row) const {
    using C = Compute<T>;
    Candidate<C> best = {C(0), -1};
    const auto visit = [&](int64_t e, T value) { best = Better<largest>{}(best, Candidate<C>{C(value), e}); };
    for_each_value(team, extent, visit, x + row * extent);
    best = team.reduce(best, Better<largest>{});
    if (team.lane() == 0) y[row] = best.index;
  }
};
template <bool largest, class T> struct ArgColumns {
  const T* x;
  Along along;
  int64_t* y;
  __device__ void operator()(int64_t i) const {
    using C = Compute<T>;
    const auto [o, j] = split(i, along.inner);
    Candidate<C> best = {C(0), -1};
    for (int64_t e = 0; e < along.extent; ++e)
      best = Better<largest>{}(best, Candidate<C>{C(x[(o * along.extent + e) * along.inner + j]), e});
    y[i] = best.index;
  }
};
template <bool largest, class T> void arg_reduce(const T* x, Along along, int64_t* y) {
  if (along.inner == 1)
    for_each_row(along.outer, along.extent, ArgRows<largest, T>{x, along.extent, y});
  else
    for_each(along.outer * along.inner, ArgColumns<largest, T>{x, along, y});
}

// Few of many: a team finds the next of its line, one after the other, in k passes.
template <class T> struct Next {
  Ordered<T> lines;
  template <class Team> __device__ void operator()(Team team, int64_t number) const {
    using R = Ranked<uint64_t>;  // for lines of any length
    const T* const line = lines.line(number);
    R last = R::last();
    for (int64_t place = 0; place < lines.k; ++place) {
      R next = R::last();
      for (int64_t e = team.lane(); e < lines.along.extent; e += Team::size) {
        const R other = lines.template read<uint64_t>(line, e);
        if (place == 0 || last < other) next = Earlier{}(next, other);
      }
      last = team.reduce(next, Earlier{});
      if (team.lane() == 0) lines.write(number, place, last);
    }
  }
};

template <class T> using Runs = SharedRuns<Ranked<KeyOf<T>>>;

// What a launch writes: sorted runs, where their lines are, or the results.
template <class T> struct Sorted {
  Ordered<T> lines;
  Ranked<KeyOf<T>>* runs;  // null for the results
  __device__ void write(int64_t number, int64_t place, const Ranked<KeyOf<T>>& r) const {
    if (runs != nullptr)
      runs[number * lines.along.extent + place] = r;
    else
      lines.write(number, place, r);
  }
};

// A block sorts several short lines, or a piece of a long one. Nobody needs more than the first k of a piece.
template <class T> struct SortPieces {
  Sorted<T> to;
  int64_t length, of_line, pieces;  // places of a piece; pieces of a line, and of all

  explicit SortPieces(const Sorted<T>& to) : to(to) {
    const auto [outer, extent, inner] = to.lines.along;
    const auto padded = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
    length = std::clamp<int64_t>(padded, Runs<T>::own, Runs<T>::size);
    of_line = ceil_divide(extent, length);
    pieces = outer * inner * of_line;
  }
  int64_t blocks() const { return ceil_divide(pieces * length, Runs<T>::size); }

  struct Place {
    int64_t number, in_piece, in_line;
    bool exists;
  };
  __device__ Place place(int64_t i) const {
    const auto [piece, e] = split(i, length);
    const auto [number, before] = split(piece, of_line);
    const int64_t in_line = before * length + e;
    return {number, e, in_line, piece < pieces && in_line < to.lines.along.extent};
  }
  // A thread writes the places that it has read, so none is overwritten too early.
  __device__ void operator()(Team<block_threads> block, int64_t part) const {
    __shared__ Runs<T> runs;
    for (int i = block.lane(); i < Runs<T>::size; i += block_threads) {
      const Place at = place(part * Runs<T>::size + i);
      runs[i] = at.exists ? to.lines.read(to.lines.line(at.number), at.in_line) : Ranked<KeyOf<T>>::last();
    }
    runs.sort(static_cast<int>(length));
    for (int i = block.lane(); i < Runs<T>::size; i += block_threads) {
      const Place at = place(part * Runs<T>::size + i);
      if (at.exists && at.in_piece < to.lines.k) to.write(at.number, at.in_line, runs[i]);
    }
  }
};

// A block merges a part of two neighbouring runs of `length` values, or of the first k of each.
template <class T> struct MergeRuns {
  const Ranked<KeyOf<T>>* from;
  int64_t length;
  Sorted<T> to;

  __device__ void operator()(Team<block_threads> block, int64_t part) const {
    const int64_t extent = to.lines.along.extent, k = to.lines.k;
    const auto [number, tile] = split(part, ceil_divide(extent, Runs<T>::size));
    const int64_t begin = tile * Runs<T>::size, before = begin % (2 * length), first = begin - before;
    const int64_t m = std::min({length, extent - first, k});
    const int64_t n = std::max<int64_t>(std::min({length, extent - first - length, k}), 0);
    const int count = static_cast<int>(std::min<int64_t>(std::min(m + n, k) - before, Runs<T>::size));
    if (count <= 0) return;
    const Ranked<KeyOf<T>>* const a = from + number * extent + first;
    const Ranked<KeyOf<T>>* const b = a + length;
    const auto precedes = [&](int64_t i, int64_t j) { return a[i] < b[j]; };
    const int64_t place = before + block.lane() % 2 * count;  // where the part begins, or ends
    const int64_t border = from_first(m, n, place, precedes);
    const int64_t i = __shfl_sync(all_lanes, border, 0), j = before - i;
    const int middle = static_cast<int>(__shfl_sync(all_lanes, border, 1) - i);

    __shared__ Runs<T> runs;
    for (int at = block.lane(); at < count; at += block_threads)
      runs[at] = at < middle ? a[i + at] : b[j + at - middle];
    runs.merge(middle, count);
    for (int at = block.lane(); at < count; at += block_threads) to.write(number, begin + at, runs[at]);
  }
};

template <class T> void sort(const Ordered<T>& lines) {
  const auto [outer, extent, inner] = lines.along;
  const int64_t size = Runs<T>::size, all = extent > size ? outer * extent * inner : 0;
  const Scratch<Ranked<KeyOf<T>>> one(all), other(all);
  Ranked<KeyOf<T>>*from = one.data(), *to = other.data();
  const SortPieces<T> pieces(Sorted<T>{lines, extent > size ? from : nullptr});
  for_each_block(pieces.blocks(), pieces);
  for (int64_t length = size; length < extent; length *= 2) {
    const MergeRuns<T> merge{from, length, {lines, 2 * length < extent ? to : nullptr}};
    for_each_block(outer * inner * ceil_divide(extent, size), merge);
    std::swap(from, to);
  }
}
template <class T> void top_k(const Ordered<T>& lines) {
  const auto [outer, extent, inner] = lines.along;
  const bool few = lines.k <= 8 && lines.k <= extent / 128, long_indices = extent >> 32 != 0;
  if (few || long_indices)
    for_each_row(outer * inner, extent, Next<T>{lines});
  else
    sort(lines);
}

}  // namespace
}  // namespace cuda

void CudaBackend::arg_reduce(Reduction op, const Tensor& x, Along along, Tensor& y) {
  visit(x.dtype(), [&]<class T>() {
    if (op == Reduction::maximum)
      cuda::arg_reduce<true>(x.data<T>(), along, y.mutate<int64_t>());
    else
      cuda::arg_reduce<false>(x.data<T>(), along, y.mutate<int64_t>());
  });
}

void CudaBackend::top_k(const Tensor& x, Along along, int64_t k, bool largest, Tensor& values, Tensor& indices) {
  visit(x.dtype(), [&]<class T>() {
    cuda::top_k(cuda::Ordered<T>{x.data<T>(), along, k, largest, values.mutate<T>(), indices.mutate<int64_t>()});
  });
}

}  // namespace weft
