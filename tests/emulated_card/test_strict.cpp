// SPDX-License-Identifier: Apache-2.0
// The emulated card refuses what a real one may let pass by luck.
#include <cmath>

#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/on_card.h"
#include "weft/engine/kernels/cuda/blas.h"
#include "weft/engine/kernels/cuda/used_bytes.h"

using namespace on_card;
using Catch::Contains;

namespace {

template <class T> __global__ void copy_first(int64_t n, T* y, const T* x) {
  for (int64_t i = threadIdx.x; i < n; i += threads) y[i] = x[i];
}

// What is wrong with copying n values from memory for `size` of them, or to it.
template <class T> std::string fault_of_copy(int64_t n, size_t size, bool reads) {
  return in_a_process([=] {
    const Stream stream;
    const OnCard<T> exact(size), larger(2 * size);
    launch(stream, 1, copy_first<T>, n, reads ? larger.data : exact.data, reads ? exact.data : larger.data);
    return fault_on(stream);
  });
}

TEST_CASE("a kernel that reads or writes one element beyond what was allocated is a fault with its name") {
  CHECK(fault_of_copy<uint8_t>(13, 13, true) == "no error");
  CHECK_THAT(fault_of_copy<uint8_t>(14, 13, true),
             Contains("reads 1 bytes at 0x") && Contains(", 13 bytes from the begin of 13 bytes (block 0, thread 13)"));
  CHECK_THAT(fault_of_copy<uint8_t>(14, 13, false), Contains("writes 1 bytes"));
  CHECK(fault_of_copy<double>(600, 600, true) == "no error");
  CHECK_THAT(fault_of_copy<double>(601, 600, true), Contains("double") && Contains("reads 8 bytes"));
  CHECK_THAT(fault_of_copy<uint4>(513, 512, false), Contains("writes 16 bytes"));
  CHECK_THAT(fault_of_copy<uint16_t>(4096, 4095, false), Contains("writes 2 bytes"));
}

__global__ void store_pairs(float* y) { __stwb(reinterpret_cast<uint2*>(y) + threadIdx.x, uint2{1, 2}); }
__global__ void load_double(float* y) { y[0] = static_cast<float>(*reinterpret_cast<double*>(y + 2)); }

TEST_CASE("a misaligned access ends the program with the line of the kernel and its address") {
  const auto end_of = [](void (*kernel)(float*), int64_t offset) {
    return in_a_process([=] {
      const Stream stream;
      const OnCard<float> y(3 * threads);
      launch(stream, 1, kernel, y.data + offset);
      return fault_on(stream);
    });
  };
  CHECK(end_of(store_pairs, 2) == "no error");
  CHECK_THAT(end_of(store_pairs, 3), Contains("cuda_runtime.h:") && Contains("the kernel of {float*} accesses 0x2") &&
                                         Contains("c, which is not aligned"));
  CHECK(end_of(load_double, 0) == "no error");
  CHECK_THAT(end_of(load_double, 1), Contains("test_strict.cpp:") && Contains("which is not aligned"));
}

// A block of a pool, as the engine divides it.
struct PoolBlock : OnCard<float> {
  const weft::cuda::UsedBytes used;
  explicit PoolBlock(size_t capacity) : OnCard(capacity), used(data, capacity * sizeof(float)) {}
};

TEST_CASE("a kernel may use what a pool has handed out, exactly, as long as it has") {
  enum class Mistake { none, before, beyond, after };
  const auto fault_of = [](Mistake mistake) {
    return in_a_process([mistake] {
      const Stream stream;
      const PoolBlock block(threads);
      const OnCard<float> y(threads);
      const auto copy = [&](int64_t n) { launch(stream, 1, copy_first<float>, n, y.data, block.data); };
      if (mistake == Mistake::before) copy(1);
      block.used.begin(100 * sizeof(float));
      copy(mistake == Mistake::beyond ? 101 : 100);
      block.used.end();
      if (mistake == Mistake::after) copy(1);
      return fault_on(stream);
    });
  };
  CHECK(fault_of(Mistake::none) == "no error");  // though it runs only when the block is no longer in use
  CHECK_THAT(fault_of(Mistake::before), Contains("which the pool had taken back when this was enqueued"));
  CHECK_THAT(fault_of(Mistake::beyond), Contains("400 bytes from the begin of 400 bytes"));
  CHECK_THAT(fault_of(Mistake::after), Contains("which the pool had taken back when this was enqueued"));
}

TEST_CASE("a block that a pool hands out again holds NaN, and what had it before must be done") {
  const auto result = [](bool waits) {
    return in_a_process([waits] {
      const Stream first, second;
      const PoolBlock block(threads);
      const OnCard<float> x(threads), y(threads);
      const std::vector<float> ones(threads, 1);
      cudaMemcpyAsync(x.data, ones.data(), threads * sizeof(float), cudaMemcpyHostToDevice, first.handle);
      block.used.begin(threads * sizeof(float));
      launch(first, 1, copy_first<float>, int64_t{threads}, block.data, x.data);
      if (waits) cudaStreamSynchronize(first.handle);
      block.used.end();
      block.used.begin(threads * sizeof(float));
      launch(second, 1, copy_first<float>, int64_t{threads}, y.data, block.data);
      if (!std::isnan(downloaded(y.data, threads, second)[threads - 1])) return std::string("an old value");
      return fault_on(first);
    });
  };
  CHECK(result(true) == "no error");
  CHECK_THAT(result(false), Contains("which another use has overwritten, because nothing made it wait"));
}

TEST_CASE("copies use exactly what was allocated or handed out") {
  const Stream stream;
  const OnCard<char> allocated(13);
  const PoolBlock block(threads);
  block.used.begin(100);
  std::vector<char> host(1000);
  const auto upload = [&](void* to, size_t bytes) {
    return cudaMemcpyAsync(to, host.data(), bytes, cudaMemcpyHostToDevice, stream.handle);
  };
  CHECK(upload(allocated.data, 13) == cudaSuccess);
  CHECK(upload(allocated.data, 14) == cudaErrorInvalidValue);
  CHECK(upload(block.data, 100) == cudaSuccess);
  CHECK(upload(block.data, 101) == cudaErrorInvalidValue);
  CHECK_THAT(cudaGetErrorString(cudaGetLastError()), Contains("invalid argument: a copy of 101 bytes"));
}

TEST_CASE("launches, copies, events and products are refused while another card is current") {
  const Stream there(1);
  const OnCard<float> x(threads, 1), y(threads, 1);
  const weft::cuda::Cublas& blas = weft::cuda::cublas();
  const Event event(1);
  cublasHandle_t handle = nullptr;
  {
    const Current current(1);
    blas.create(&handle);
    CHECK(blas.set_stream(handle, there.handle) == CUBLAS_STATUS_SUCCESS);
  }
  for (const int card : {1, 0}) {
    const Current current(card);
    const bool wrong = card == 0;
    const auto refused = [wrong](cudaError_t code) {
      return code == (wrong ? cudaErrorInvalidResourceHandle : cudaSuccess) &&
             (!wrong || cudaGetErrorString(cudaGetLastError()) ==
                            std::string("invalid resource handle: a stream of card 1 while card 0 is current"));
    };
    CHECK(refused(launch(there, 1, copy_first<float>, int64_t{1}, y.data, x.data)));
    CHECK(refused(cudaMemcpyAsync(y.data, x.data, 4, cudaMemcpyDeviceToDevice, there.handle)));
    CHECK(refused(cudaEventRecord(event.handle, there.handle)));
    CHECK(refused(cudaStreamWaitEvent(there.handle, event.handle, 0)));
    const float one = 1;
    CHECK(blas.gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x.data, CUDA_R_32F, 1, x.data, CUDA_R_32F, 1, &one,
                    y.data, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                    CUBLAS_GEMM_DEFAULT) == (wrong ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS));
  }
  CHECK(cudaStreamSynchronize(there.handle) == cudaSuccess);
}

TEST_CASE("launches beyond a card's limits are refused") {
  const Stream stream;
  const auto refusal = [&](unsigned blocks, unsigned of_threads, size_t shared = 0) {
    const cudaLaunchConfig_t shape = {{blocks}, {of_threads}, shared, stream.handle};
    const cudaError_t code = cudaLaunchKernelEx(&shape, copy_first<float>, int64_t{0}, nullptr, nullptr);
    return code == cudaSuccess ? std::string() : cudaGetErrorString(code);
  };
  CHECK(refusal(1, 1024) == "");
  CHECK(refusal(0, 32) == "invalid configuration argument: 0 blocks");
  CHECK(refusal(1u << 31, 32) == "invalid configuration argument: 2147483648 blocks");
  CHECK(refusal(1, 1056) == "invalid configuration argument: 1056 threads in a block");
  CHECK(refusal(1, 0) == "invalid configuration argument: 0 threads in a block");
  CHECK(refusal(1, 16) == "invalid configuration argument: 16 threads in a block");  // Weft's kernels have whole warps
  CHECK(refusal(1, 32, 49152) == "");
  CHECK(refusal(1, 32, 49153) == "invalid argument: 49153 bytes of shared memory");
  const auto allow = [](int bytes) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(&copy_first<float>),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  CHECK(allow(232449) == cudaErrorInvalidValue);
  CHECK(allow(232448) == cudaSuccess);
  CHECK(refusal(1, 32, 232448) == "");
  CHECK(refusal(1, 32, 232449) != "");
  CHECK(cudaStreamSynchronize(stream.handle) == cudaSuccess);
}

TEST_CASE("cuBLAS refuses leading dimensions of less than a matrix, and reads and writes only what is in use") {
  const weft::cuda::Cublas& blas = weft::cuda::cublas();
  struct Sizes {  // of a product of 2 x 4 by 4 x 3
    int64_t lda = 2, ldb = 4, ldc = 2, step_c = 6;
    size_t a = 16, b = 24, c = 12;  // in elements, two matrices each
    cublasOperation_t transpose_a = CUBLAS_OP_N;
  };
  const auto product = [&](const Sizes& sizes) {
    return in_a_process([&] {
      const Stream stream;
      const OnCard<float> a(sizes.a), b(sizes.b), c(sizes.c);
      cublasHandle_t handle = nullptr;
      blas.create(&handle);
      blas.set_stream(handle, stream.handle);
      const float factors[] = {1, 0};
      const cublasStatus_t status =
          blas.gemm_strided_batched(handle, sizes.transpose_a, CUBLAS_OP_N, 2, 3, 4, factors, a.data, CUDA_R_32F,
                                    sizes.lda, 8, b.data, CUDA_R_32F, sizes.ldb, 12, factors + 1, c.data, CUDA_R_32F,
                                    sizes.ldc, sizes.step_c, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      return status == CUBLAS_STATUS_SUCCESS ? fault_on(stream) : std::string(blas.status_text(status));
    });
  };
  const std::string refused = "an unsupported value or parameter was passed to the function";
  CHECK(product({}) == "no error");
  CHECK(product({.lda = 1}) == refused);
  CHECK(product({.lda = 3, .transpose_a = CUBLAS_OP_T}) == refused);
  CHECK(product({.lda = 4, .transpose_a = CUBLAS_OP_T}) == "no error");
  CHECK(product({.ldb = 3}) == refused);
  CHECK(product({.ldc = 1}) == refused);
  CHECK(product({.step_c = 5}) == refused);  // the results would overlap
  CHECK_THAT(product({.a = 15}), Contains("cuBLAS reads 64 bytes") && Contains("of 60 bytes"));
  CHECK_THAT(product({.ldb = 5}), Contains("cuBLAS reads") && Contains("of 96 bytes"));
  CHECK_THAT(product({.c = 11}), Contains("cuBLAS writes 48 bytes") && Contains("of 44 bytes"));
}

__global__ void add_to_next(uint8_t* y) {  // another block writes the last of its bytes
  y[blockIdx.x * threads + threadIdx.x + 1] = static_cast<uint8_t>(y[blockIdx.x * threads + threadIdx.x] + 1);
}
__global__ void mark(uint8_t* y) { *y = 1; }
__global__ void mark_atomically(uint8_t* y) { *static_cast<volatile uint8_t*>(y) = 1; }
__global__ void count_threads(uint8_t* y) { __atomic_fetch_add(reinterpret_cast<unsigned*>(y), 1u, __ATOMIC_RELAXED); }
__global__ void compare_and_swap(uint8_t* y) {
  unsigned expected = 0;
  __atomic_compare_exchange_n(reinterpret_cast<unsigned*>(y), &expected, 1u, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
__global__ void each_its_byte(uint8_t* y) {  // beside one that all read
  y[blockIdx.x + 1] = static_cast<uint8_t>(y[blockIdx.x + 1] + y[0]);
}

TEST_CASE("blocks of a launch that access one byte are a fault if one of them writes, but not if it does atomically") {
  const auto fault_of = [](unsigned blocks, void (*kernel)(uint8_t*)) {
    return in_a_process([=] {
      const Stream stream;
      const OnCard<uint8_t> y(1000);
      for (int again = 0; again < 2; ++again) launch(stream, blocks, kernel, y.data);  // in both orders of the blocks
      return fault_on(stream);
    });
  };
  CHECK(fault_of(1, mark) == "no error");
  CHECK_THAT(fault_of(2, mark), Contains("the kernel of {unsigned char*} writes 1 bytes at 0x") &&
                                    Contains("has accessed, and nothing orders the two (block "));
  for (const auto kernel : {mark_atomically, count_threads, compare_and_swap}) CHECK(fault_of(2, kernel) == "no error");
  CHECK(fault_of(100, each_its_byte) == "no error");
  CHECK(fault_of(1, add_to_next) == "no error");
  CHECK_THAT(fault_of(2, add_to_next), Contains("1 bytes") && Contains("nothing orders the two"));
}

TEST_CASE("streams that access one word are a fault if one writes, without an event or the host between them") {
  enum class Order { none, event, host, event_too_early };
  const auto fault_of = [](Order order, bool writes_first) {
    return in_a_process([=] {
      const Stream first, second;
      const OnCard<float> x(threads), y(threads);
      const Event event;
      const auto copy = [](const Stream& stream, const OnCard<float>& to, const OnCard<float>& from) {
        launch(stream, 1, copy_first<float>, int64_t{1}, to.data, from.data);
      };
      if (order == Order::event_too_early) cudaEventRecord(event.handle, first.handle);
      copy(first, writes_first ? y : x, writes_first ? x : y);
      if (order == Order::event) cudaEventRecord(event.handle, first.handle);
      if (order == Order::host) cudaStreamSynchronize(first.handle);
      if (order == Order::event || order == Order::event_too_early) cudaStreamWaitEvent(second.handle, event.handle, 0);
      copy(second, writes_first ? x : y, writes_first ? y : x);
      cudaStreamSynchronize(first.handle);
      return fault_on(second);
    });
  };
  for (const bool writes_first : {true, false}) {
    CHECK_THAT(fault_of(Order::none, writes_first), Contains("which work 1 of stream ") && Contains("nothing orders"));
    CHECK(fault_of(Order::event, writes_first) == "no error");
    CHECK(fault_of(Order::host, writes_first) == "no error");
    CHECK_THAT(fault_of(Order::event_too_early, writes_first), Contains("nothing orders the two"));
  }
}

}  // namespace
