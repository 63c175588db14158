// SPDX-License-Identifier: Apache-2.0
// The steps of optimizers, and sums of gradients. A table holds all runs of a step, so that one launch processes them.
#include <cstring>

#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/graph.h"
#include "weft/engine/kernels/cuda/launch.cuh"

namespace weft {
namespace cuda {
namespace {

// The last of `count` entries that begin at `at` or before.
__device__ inline int64_t find_entry(const int64_t* begins, int64_t count, int64_t at) {
  int64_t low = 0, high = count;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (begins[middle] <= at ? low : high) = middle;
  }
  return low;
}

// Work divided into chunks, each within one entry. The chunks of entry e begin at first_chunk[e].
template <class Entry> struct Table {
  const Entry* entries;
  const int64_t* first_chunk;
  int64_t count, chunks;

  __device__ int64_t find(int64_t chunk) const { return find_entry(first_chunk, count, chunk); }
};

// A table in host memory, uploaded to the card in one piece.
template <class Entry> class Tabled {
 public:
  explicit Tabled(int64_t capacity)
      : capacity_(capacity),
        bytes_(static_cast<size_t>(capacity) * (sizeof(Entry) + sizeof(int64_t))),
        host_(static_cast<char*>(pool::take(bytes_))),
        device_(static_cast<int64_t>(bytes_)) {}
  ~Tabled() { pool::give(host_, bytes_); }
  Tabled(const Tabled&) = delete;
  Tabled& operator=(const Tabled&) = delete;

  void add(const Entry& entry, int64_t chunks) {
    if (chunks == 0) return;
    std::memcpy(host_ + first_chunks() + static_cast<size_t>(count_) * sizeof(int64_t), &chunks_, sizeof chunks_);
    std::memcpy(host_ + static_cast<size_t>(count_) * sizeof(Entry), &entry, sizeof entry);
    ++count_;
    chunks_ += chunks;
  }
  Table<Entry> upload() {
    const char* place = device_.data();
    if (Graph* graph = context().capturing())
      place = graph->keep(host_, bytes_, [this](char* captured) {
        const auto* now = reinterpret_cast<const Entry*>(host_);
        auto* entry = reinterpret_cast<Entry*>(captured);
        return std::all_of(now, now + count_, [&](const Entry& next) { return (entry++)->renew(next); });
      });
    else if (count_ > 0)
      context().upload(device_.data(), host_, bytes_);
    return {reinterpret_cast<const Entry*>(place), reinterpret_cast<const int64_t*>(place + first_chunks()), count_,
            chunks_};
  }

 private:
  static_assert(std::is_trivially_copyable_v<Entry> && sizeof(Entry) % sizeof(int64_t) == 0);
  size_t first_chunks() const { return static_cast<size_t>(capacity_) * sizeof(Entry); }

  int64_t capacity_;
  size_t bytes_;
  char* host_;
  Scratch<char> device_;
  int64_t count_ = 0, chunks_ = 0;
};

constexpr int pack = 4;                                   // 16 bytes of f32
constexpr int64_t chunk = int64_t{block_threads} * pack;  // elements that a block updates at a time

// F's slots are `Slots` arrays of T.
template <class F, class G, class T, int Slots> struct alignas(8) Run {
  F f;
  const G* g;
  T* p;
  T* s[Slots == 0 ? 1 : Slots];
  BFloat16* rounded;
  int64_t count;

  // Takes the numbers of a later step.
  bool renew(const Run& next) {
    f = next.f;
    return p == next.p && count == next.count;
  }
};

template <class F, class G, class T, int Slots> __device__ void update_pack(const Run<F, G, T, Slots>& run, int64_t i) {
  const int64_t left = run.count - i;
  const Pack<G, pack> g = load<pack>(run.g + i, left);
  Pack<T, pack> p = load<pack>(static_cast<const T*>(run.p) + i, left), s[Slots == 0 ? 1 : Slots];
#pragma unroll
  for (int k = 0; k < Slots; ++k) s[k] = load<pack>(static_cast<const T*>(run.s[k]) + i, left);
#pragma unroll
  for (int k = 0; k < pack; ++k) {
    const T gradient = static_cast<T>(static_cast<Compute<G>>(g.at[k]));
    if constexpr (Slots == 0) run.f(gradient, p.at[k]);
    if constexpr (Slots == 1) run.f(gradient, p.at[k], s[0].at[k]);
    if constexpr (Slots == 2) run.f(gradient, p.at[k], s[0].at[k], s[1].at[k]);
    if constexpr (Slots == 3) run.f(gradient, p.at[k], s[0].at[k], s[1].at[k], s[2].at[k]);
  }
  store(p, run.p + i, left);
#pragma unroll
  for (int k = 0; k < Slots; ++k) store(s[k], run.s[k] + i, left);
  if (!run.rounded) return;
  Pack<BFloat16, pack> narrow;
#pragma unroll
  for (int k = 0; k < pack; ++k) narrow.at[k] = BFloat16(static_cast<float>(p.at[k]));
  store(narrow, run.rounded + i, left);
}

template <class F, class G, class T, int Slots>
__global__ void __launch_bounds__(block_threads) update_kernel(Table<Run<F, G, T, Slots>> table) {
  for (int64_t c = blockIdx.x; c < table.chunks; c += gridDim.x) {
    const int64_t entry = table.find(c);
    const int64_t i = (c - table.first_chunk[entry]) * chunk + int64_t{threadIdx.x} * pack;
    if (i < table.entries[entry].count) update_pack(table.entries[entry], i);
  }
}

template <class F, class G, class T, class... S>
void update_runs(std::span<const UpdateRun> runs, T* p, BFloat16* rounded, S*... s) {
  constexpr int slots = sizeof...(S);
  using Entry = Run<F, G, T, slots>;
  Tabled<Entry> table(static_cast<int64_t>(runs.size()));
  for (const auto& [gradient, first, scalars] : runs) {
    const Entry entry = {F(scalars),       gradient.template data<G>(),         p + first,
                         {(s + first)...}, rounded ? rounded + first : nullptr, gradient.size()};
    table.add(entry, ceil_divide(gradient.size(), chunk));
  }
  const Table<Entry> uploaded = table.upload();
  launch(update_kernel<F, G, T, slots>, uploaded.chunks, uploaded);
}

template <class T> struct Squares {
  const T* x;
  int64_t count, begin;
  double* sums;

  bool renew(const Squares&) { return true; }  // it has none
};

// One warp per sum, in the same order as the CPU's square_sum.
template <class T> __global__ void __launch_bounds__(block_threads) square_sums_kernel(Table<Squares<T>> table) {
  constexpr int64_t block = SquareSumsRun::block;
  const int lane = static_cast<int>(threadIdx.x) % warp_threads;
  const int64_t stride = int64_t{gridDim.x} * (block_threads / warp_threads);
  for (int64_t c = int64_t{blockIdx.x} * (block_threads / warp_threads) + threadIdx.x / warp_threads; c < table.chunks;
       c += stride) {
    const int64_t entry = table.find(c), number = c - table.first_chunk[entry];
    const Squares<T> run = table.entries[entry];
    const int64_t cut = (run.begin / block + number) * block - run.begin;
    const int64_t first = cut < 0 ? 0 : cut, last = cut + block < run.count ? cut + block : run.count;
    double sum = 0;
    for (int64_t i = first + lane; i < last; i += warp_threads) {
      const double wide = static_cast<double>(static_cast<Compute<T>>(run.x[i]));
      sum = fma(wide, wide, sum);
    }
    sum = Team<warp_threads>{}.reduce(sum, [](double a, double b) { return a + b; });
    if (lane == 0) run.sums[number] = sum;
  }
}

// The runs are parameters of the kernel, so that nothing is uploaded. The elements of all are numbered in their order.
template <class T> struct AddParts {
  static constexpr int64_t most_runs = 64;
  double* sums;
  int64_t each;  // of the four parts
  int64_t count = 0, size = 0;
  const T* x[most_runs] = {};
  int64_t begins[most_runs] = {}, firsts[most_runs] = {};

  // Takes the first runs, which have one type.
  AddParts(std::span<const ExactRun>& runs, Tensor& to) : sums(to.mutate<double>()), each(to.size() / 4) {
    const DType type = runs[0].x.dtype();
    for (; !runs.empty() && runs[0].x.dtype() == type && count < most_runs; runs = runs.subspan(1)) {
      x[count] = runs[0].x.data<T>();
      begins[count] = size;
      firsts[count++] = runs[0].first;
      size += runs[0].x.size();
    }
  }
  __device__ void operator()(int64_t i) const {
    const int64_t run = find_entry(begins, count, i), j = i - begins[run];
    const ExactParts parts(static_cast<double>(static_cast<Compute<T>>(x[run][j])));
    for (int64_t part = 0; part < 4; ++part) sums[part * each + firsts[run] + j] += parts.at[part];
  }
};

// Sums whose chunks are numbered in their order. They, too, are parameters.
template <class T> struct Sums {
  static constexpr int64_t most = 64;
  int64_t count = 0, chunks = 0;
  const T *a[most] = {}, *b[most] = {};
  T* to[most] = {};
  int64_t sizes[most] = {}, first_chunk[most] = {};

  // Takes the first sums, which have one type.
  explicit Sums(std::span<Addition>& sums) {
    const DType type = sums[0].to.dtype();
    for (; !sums.empty() && sums[0].to.dtype() == type && count < most; sums = sums.subspan(1)) {
      a[count] = sums[0].a.template data<T>();
      b[count] = sums[0].b.template data<T>();
      to[count] = sums[0].to.template mutate<T>();
      sizes[count] = sums[0].to.size();
      first_chunk[count] = chunks;
      chunks += ceil_divide(sizes[count++], chunk);
    }
  }
};

template <class T> __global__ void __launch_bounds__(block_threads) add_kernel(Sums<T> sums) {
  const auto add = [](T a, T b) { return T(Compute<T>(a) + Compute<T>(b)); };
  for (int64_t c = blockIdx.x; c < sums.chunks; c += gridDim.x) {
    const int64_t sum = find_entry(sums.first_chunk, sums.count, c);
    const int64_t i = (c - sums.first_chunk[sum]) * chunk + int64_t{threadIdx.x} * pack, left = sums.sizes[sum] - i;
    if (left > 0) map_pack<pack>(left, add, sums.to[sum] + i, sums.a[sum] + i, sums.b[sum] + i);
  }
}

template <class T> struct ExactTotal {
  const double* parts;
  int64_t n;
  T* y;
  __device__ void operator()(int64_t i) const { y[i] = static_cast<T>(ExactParts::total(parts, n, i)); }
};

}  // namespace
}  // namespace cuda

void CudaBackend::update(UpdateRule rule, std::span<const UpdateRun> runs, Tensor& value, std::span<Tensor> slots,
                         Tensor& rounded) {
  if (runs.empty()) return;
  BFloat16* const narrow = rounded.defined() ? rounded.mutate<BFloat16>() : nullptr;
  const auto update_in = [&]<class T>() {
    T* const p = value.mutate<T>();
    with_update<T>(rule, slots, [&]<class F, class... S>(S*... s) {
      if (runs[0].gradient.dtype() == DType::bf16)
        cuda::update_runs<F, BFloat16>(runs, p, narrow, s...);
      else
        cuda::update_runs<F, T>(runs, p, narrow, s...);
    });
  };
  value.dtype() == DType::f64 ? update_in.operator()<double>() : update_in.operator()<float>();
}

void CudaBackend::square_sums(std::span<const SquareSumsRun> runs, Tensor& sums) {
  if (runs.empty()) return;
  visit_floating(runs[0].x.dtype(), [&]<class T>() {
    cuda::Tabled<cuda::Squares<T>> table(static_cast<int64_t>(runs.size()));
    double* const to = sums.mutate<double>();
    for (const SquareSumsRun& run : runs)
      table.add({run.x.data<T>(), run.x.size(), run.begin, to + run.sum}, run.count());
    const auto uploaded = table.upload();
    cuda::launch(cuda::square_sums_kernel<T>,
                 cuda::ceil_divide(uploaded.chunks, cuda::block_threads / cuda::warp_threads), uploaded);
  });
}

void CudaBackend::add_exact_parts(std::span<const ExactRun> runs, Tensor& sums) {
  while (!runs.empty())
    visit_floating(runs[0].x.dtype(), [&]<class T>() {
      const cuda::AddParts<T> add(runs, sums);
      cuda::for_each(add.size, add);
    });
}
void CudaBackend::add_all(std::span<Addition> sums) {
  while (!sums.empty())
    visit_floating(sums[0].to.dtype(), [&]<class T>() {
      const cuda::Sums<T> some(sums);
      cuda::launch(cuda::add_kernel<T>, some.chunks, some);
    });
}
void CudaBackend::exact_total(const Tensor& parts, Tensor& y) {
  const double* from = parts.data<double>();
  const int64_t n = y.size();
  if (y.dtype() == DType::f64)
    cuda::for_each(n, cuda::ExactTotal<double>{from, n, y.mutate<double>()});
  else
    cuda::for_each(n, cuda::ExactTotal<float>{from, n, y.mutate<float>()});
}

}  // namespace weft
