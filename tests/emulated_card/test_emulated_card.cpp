// SPDX-License-Identifier: Apache-2.0
// The emulated card detects what fails on a real one; otherwise passing tests on it would say little.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/on_card.h"
#include "weft/engine/kernels/cuda/blas.h"

using namespace on_card;

namespace {

// y[block][i] = what the next thread of the block has stored.
template <bool barrier> __global__ void pass_on(int* y) {
  __shared__ int values[threads];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  const int next = values[(threadIdx.x + 1) % threads];
  if (barrier) __syncthreads();
  values[threadIdx.x] = -1;
  y[blockIdx.x * threads + threadIdx.x] = next;
}

__global__ void sum_lanes(int* y) {
  int sum = static_cast<int>(threadIdx.x);
  for (int distance = 1; distance < 32; distance *= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  y[threadIdx.x] = sum;
}
__global__ void shift_lanes(double* y) {
  const double mine = threadIdx.x + 0.5;
  y[threadIdx.x] = __shfl_up_sync(~0u, mine, 3) + 1000 * __shfl_sync(~0u, mine, 31);
}

// Of the second block only one thread has something in the first round, and none in the last.
__global__ void ask_all(int* y) {
  const int first = __syncthreads_or(blockIdx.x == 1 && threadIdx.x == 40), second = __syncthreads_or(threadIdx.x == 3);
  y[blockIdx.x * threads + threadIdx.x] = 4 * first + 2 * second + __syncthreads_or(blockIdx.x == 0);
}

__global__ void copy_lanes(int* y, const int* x) { y[threadIdx.x] = x[threadIdx.x]; }

__global__ void one_lane_stays_away(int* y) {
  if (threadIdx.x != 5) y[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
}
__global__ void one_warp_stays_away(int* y) {
  if (threadIdx.x >= 32) __syncthreads();
  y[threadIdx.x] = 1;
}

}  // namespace

TEST_CASE("work on a stream is not done until it is waited for") {
  const Stream stream;
  const OnCard<int> on_card(1);
  void* pinned = nullptr;
  cudaHostAlloc(&pinned, sizeof(int), cudaHostAllocPortable);
  int& value = *static_cast<int*>(pinned) = 1;
  cudaMemcpyAsync(on_card.data, pinned, sizeof(int), cudaMemcpyHostToDevice, stream.handle);
  value = 2;  // too early: this value will be copied
  CHECK(downloaded(on_card.data, 1, stream) == std::vector<int>{2});
  value = 3;
  cudaMemcpyAsync(pinned, on_card.data, sizeof(int), cudaMemcpyDeviceToHost, stream.handle);
  CHECK(value == 3);
  cudaStreamSynchronize(stream.handle);
  CHECK(value == 2);
}

TEST_CASE("a stream that waits for an event runs after the work before it, but not after later work") {
  const Stream first, second;
  const OnCard<int> from(threads), to(threads);
  const Event event;
  CHECK(cudaEventQuery(event.handle) == cudaSuccess);
  launch(first, 1, sum_lanes, from.data);
  cudaEventRecord(event.handle, first.handle);
  cudaStreamWaitEvent(second.handle, event.handle, 0);
  cudaMemcpyAsync(to.data, from.data, threads * sizeof(int), cudaMemcpyDeviceToDevice, second.handle);
  CHECK(downloaded(to.data, threads, second)[0] == 31 * 32 / 2);
  CHECK(cudaEventSynchronize(event.handle) == cudaSuccess);
}

TEST_CASE("the host cannot access card memory, and new memory holds NaN") {
  const Stream stream;
  const OnCard<float> on_card(3);
  CHECK(end_of([&] { return static_cast<int>(*static_cast<volatile float*>(on_card.data)); }) == -SIGSEGV);
  for (const float value : downloaded(on_card.data, 3, stream)) CHECK(std::isnan(value));
}

TEST_CASE("a kernel that accesses another card's memory ends the program, even while that card is busy") {
  for (const bool busy : {false, true})
    for (const bool reads : {false, true}) {
      const auto end = [&](int card_of_memory) {
        return end_of([&] {
          const Stream stream, other(card_of_memory);
          const OnCard<int> here(threads), there(threads, card_of_memory), apart(threads, card_of_memory);
          if (busy) {
            const Current current(card_of_memory);
            for (int i = 0; i < 1000; ++i) launch(other, 1, sum_lanes, apart.data);
            other.handle->is_done(1);
          }
          launch(stream, 1, copy_lanes, reads ? here.data : there.data, reads ? there.data : here.data);
          return cudaStreamSynchronize(stream.handle) == cudaSuccess ? 7 : 0;
        });
      };
      CHECK(end(0) == 7);
      CHECK(end(2) == -SIGSEGV);
    }
}

TEST_CASE("a copy between cards arrives, on a stream of the destination card") {
  const Stream stream, other(1);
  const OnCard<int> here(threads), there(threads, 1);
  launch(stream, 1, sum_lanes, here.data);
  cudaStreamSynchronize(stream.handle);
  const auto copy = [&](const Stream& on) {
    const Current current(on.handle->card());
    return cudaMemcpyAsync(there.data, here.data, threads * sizeof(int), cudaMemcpyDeviceToDevice, on.handle);
  };
  CHECK(copy(stream) == cudaErrorInvalidValue);
  CHECK(copy(other) == cudaSuccess);
  CHECK(downloaded(there.data, threads, other)[0] == 31 * 32 / 2);
  int value = 0;
  CHECK(cudaMemcpyAsync(&value, there.data, sizeof value, cudaMemcpyDeviceToHost, stream.handle) ==
        cudaErrorInvalidValue);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, there.data) == cudaSuccess);
  CHECK(attributes.device == 1);
  cudaGetLastError();
}

TEST_CASE("a launch on another card's stream and an event of another card are refused") {
  const Stream stream, other(1);
  const OnCard<int> there(threads, 1);
  const Event event;
  CHECK(launch(other, 1, sum_lanes, there.data) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(event.handle, other.handle) == cudaErrorInvalidResourceHandle);
  {
    const Current current(1);
    CHECK(launch(other, 1, sum_lanes, there.data) == cudaSuccess);
    CHECK(launch(stream, 1, sum_lanes, there.data) == cudaErrorInvalidResourceHandle);
  }
  CHECK(cudaEventRecord(event.handle, stream.handle) == cudaSuccess);
  {
    const Current current(1);
    CHECK(cudaStreamWaitEvent(other.handle, event.handle, 0) == cudaSuccess);
  }
  CHECK(downloaded(there.data, 1, other)[0] == 31 * 32 / 2);
  cudaGetLastError();
}

TEST_CASE("copies out of bounds or in the wrong direction are refused, and so is allocating too much") {
  const Stream stream;
  const OnCard<char> on_card(5000);
  std::vector<char> host(20000);
  const auto upload = [&](char* to, size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, host.data(), bytes, kind, stream.handle);
  };
  CHECK(upload(on_card.data, 5000, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(upload(on_card.data, 20000, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(upload(on_card.data, 5000, cudaMemcpyDeviceToDevice) == cudaErrorInvalidValue);
  CHECK(upload(host.data() + 5000, 5000, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, weft::emulated::card_bytes + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("freed memory is reused between live allocations") {
  constexpr size_t bytes = 100'000;
  const auto free_now = [] {
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return free;
  };
  const size_t before = free_now();
  void *gap = nullptr, *again = nullptr;
  cudaMalloc(&gap, bytes);
  const OnCard<char> behind(1);
  cudaFree(gap);
  const OnCard<char> larger(2 * bytes);
  cudaMalloc(&again, bytes);
  CHECK(again == gap);
  CHECK(larger.data > behind.data);
  cudaFree(again);
  CHECK(before - free_now() >= 2 * bytes);
}

TEST_CASE("threads of a block synchronise at a barrier and race without one") {
  const Stream stream;
  const OnCard<int> y(2 * threads);
  std::vector<int> next(2 * threads);
  for (size_t i = 0; i < next.size(); ++i) next[i] = static_cast<int>((i + 1) % threads);
  for (int again = 0; again < 2; ++again) {  // the order of threads differs between launches
    launch(stream, 2, pass_on<true>, y.data);
    CHECK(downloaded(y.data, 2 * threads, stream) == next);
    launch(stream, 2, pass_on<false>, y.data);
    CHECK(downloaded(y.data, 2 * threads, stream) != next);
  }
}

TEST_CASE("lanes of a warp exchange values") {
  const Stream stream;
  const OnCard<int> sums(threads);
  launch(stream, 1, sum_lanes, sums.data);
  const std::vector<int> values = downloaded(sums.data, threads, stream);
  const OnCard<double> shifted(threads);
  launch(stream, 1, shift_lanes, shifted.data);
  const std::vector<double> moved = downloaded(shifted.data, threads, stream);
  for (unsigned i = 0; i < threads; ++i) {
    const unsigned warp = i / 32 * 32, lane = i % 32;
    CHECK(values[i] == static_cast<int>(32 * warp + 31 * 32 / 2));
    CHECK(moved[i] == (lane < 3 ? i : i - 3) + 0.5 + 1000 * (warp + 31.5));
  }
}

TEST_CASE("threads of a block learn whether any of them has something") {
  const Stream stream;
  const OnCard<int> y(2 * threads);
  launch(stream, 2, ask_all, y.data);
  std::vector<int> expected(threads, 3);
  expected.resize(2 * threads, 6);
  CHECK(downloaded(y.data, 2 * threads, stream) == expected);
}

TEST_CASE("threads that skip a shuffle or a barrier are a fault, which every later call reports") {
  const auto fault_of = [](void (*kernel)(int*)) {
    return end_of([kernel] {
      const Stream stream;
      const OnCard<int> y(threads);
      launch(stream, 1, kernel, y.data);
      const bool told = cudaStreamSynchronize(stream.handle) == cudaErrorLaunchFailure;
      return told && cudaGetLastError() == cudaErrorLaunchFailure && cudaGetErrorString(cudaErrorLaunchFailure) ? 7 : 0;
    });
  };
  CHECK(fault_of(one_lane_stays_away) == 7);
  CHECK(fault_of(one_warp_stays_away) == 7);
  CHECK(fault_of(sum_lanes) == 0);
}

TEST_CASE("cuBLAS refuses types that it does not multiply, also with the requested precision") {
  const weft::cuda::Cublas& blas = weft::cuda::cublas();
  const Stream stream;
  const OnCard<double> a(1), b(1), c(1);
  cublasHandle_t handle = nullptr;
  blas.create(&handle);
  blas.set_stream(handle, stream.handle);
  const auto types = {std::pair(CUDA_R_32F, "f"), {CUDA_R_64F, "d"}, {CUDA_R_16BF, "b"}, {CUDA_R_16F, "h"}};
  std::string known;
  for (const auto& [compute, name] :
       {std::pair(CUBLAS_COMPUTE_32F, "f32"), {CUBLAS_COMPUTE_32F_FAST_TF32, "tf32"}, {CUBLAS_COMPUTE_64F, "f64"}})
    for (const auto& [type, text] : types)
      for (const auto& [type_c, text_c] : types) {
        const double one = 1;
        const cublasStatus_t status = blas.gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, a.data, type, 1,
                                                b.data, type, 1, &one, c.data, type_c, 1, compute, CUBLAS_GEMM_DEFAULT);
        CHECK((status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED));
        if (status == CUBLAS_STATUS_SUCCESS) known += std::string(name) + ":" + text + text + text_c + " ";
      }
  CHECK(known == "f32:fff f32:bbf f32:bbb f32:hhf f32:hhh tf32:fff f64:ddd ");
  CHECK(cudaStreamSynchronize(stream.handle) == cudaSuccess);
}
