// SPDX-License-Identifier: Apache-2.0
// The emulated cublasLt accepts a product only by an algorithm that it has found for the same product.
#include <functional>

#include "tests/emulated_card/on_card.h"
#include "tests/support/catch.h"
#include "weft/engine/kernels/cuda/blas.h"
#include "weft/engine/kernels/cuda/blas_lt.h"

using namespace on_card;
using Catch::Contains;
using weft::cuda::cublas;
using weft::cuda::cublas_lt;

namespace {

// d = a b + bias, of 2 x 4 by 4 x 3.
struct BiasedCall {
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  uint32_t alignment = 16;
  size_t offset = 0;  // of a's first element
  size_t biases = 2, workspace = 1024, workspace_begin = 0;
  bool biased = true;
  int card = 0;  // of the stream

  explicit BiasedCall(cublasComputeType_t compute = CUBLAS_COMPUTE_32F, cudaDataType_t type = CUDA_R_32F,
                      cudaDataType_t type_d = CUDA_R_32F, cudaDataType_t factor_type = CUDA_R_32F) {
    cublas_lt().create_product(&product, compute, factor_type);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    cublas_lt().create_layout(&a, type, 2, 4, 2);
    cublas_lt().create_layout(&b, type, 4, 3, 4);
    cublas_lt().create_layout(&d, type_d, 2, 3, 2);
  }
  template <class Value> cublasStatus_t set(cublasLtMatmulDescAttributes_t what, Value value) const {
    return cublas_lt().set_product(product, what, &value, sizeof value);
  }

  cublasStatus_t find(cublasHandle_t handle, cublasLtMatmulHeuristicResult_t& best) const {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t{alignment});
    cublasLtMatmulPreference_t preference = nullptr;
    cublas_lt().create_preference(&preference);
    const uint64_t bytes = 1024;
    cublas_lt().set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    for (const auto matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                              CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      cublas_lt().set_preference(preference, matrix, &alignment, sizeof alignment);
    int count = 0;
    const cublasStatus_t status =
        cublas_lt().find_algorithms(handle, product, a, b, d, d, preference, 1, &best, &count);
    cublas_lt().destroy_preference(preference);
    return status == CUBLAS_STATUS_SUCCESS && count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : status;
  }

  // What it says, or the fault of its stream. `change` is made between the choice of the algorithm and the call.
  std::string result(const std::function<void(BiasedCall&)>& change = [](BiasedCall&) {}) {
    return in_a_process([&] {
      const Stream stream(card);
      cublasHandle_t handle = nullptr;
      cublas().create(&handle);
      cublasLtMatmulHeuristicResult_t best = {};
      if (const cublasStatus_t none = find(handle, best)) return std::string(cublas().status_text(none));
      change(*this);
      const OnCard<float> x(8 + offset), y(12), z(6), bias(biases), memory(workspace / 4);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, biased ? bias.data : nullptr);
      const float one = 1, zero = 0;
      const cublasStatus_t status = cublas_lt().multiply(
          handle, product, &one, x.data + offset, a, y.data, b, &zero, z.data, d, z.data, d, &best.algo,
          memory.data + workspace_begin, workspace - 4 * workspace_begin, stream.handle);
      return status == CUBLAS_STATUS_SUCCESS ? fault_on(stream) : std::string(cublas().status_text(status));
    });
  }
};

const std::string invalid = "an unsupported value or parameter was passed to the function";
const std::string unsupported = "the functionality requested is not supported";

}  // namespace

TEST_CASE("cublasLt multiplies by an algorithm of the same product only") {
  CHECK(BiasedCall().result() == "no error");
  CHECK(BiasedCall().result([](BiasedCall& c) { c.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT); }) ==
        invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) { c.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T); }) == invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) { cublas_lt().create_layout(&c.a, CUDA_R_32F, 2, 4, 3); }) == invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) {
    cublas_lt().create_layout(&c.a, CUDA_R_32F, 2, 3, 2);
    cublas_lt().create_layout(&c.b, CUDA_R_32F, 3, 3, 3);
  }) == invalid);
}

TEST_CASE("cublasLt refuses memory that is less aligned than its algorithm, and less workspace") {
  CHECK(BiasedCall().result([](BiasedCall& c) { c.offset = 1; }) == invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) { c.workspace = 8; }) == invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) { c.workspace_begin = 4; }) == invalid);
  CHECK(BiasedCall().result([](BiasedCall& c) { c.biased = false; }) == invalid);
  BiasedCall less;
  less.alignment = 4;
  CHECK(less.result([](BiasedCall& c) { c.offset = 1; }) == "no error");
}

TEST_CASE("cublasLt refuses a stream of another card than the current one") {
  BiasedCall elsewhere;
  elsewhere.card = 1;
  CHECK_THAT(elsewhere.result(), Contains("another card is current"));
}

TEST_CASE("cublasLt finds no algorithm for 65 rows") {
  BiasedCall tall;
  cublas_lt().create_layout(&tall.a, CUDA_R_32F, 65, 4, 65);
  cublas_lt().create_layout(&tall.d, CUDA_R_32F, 65, 3, 65);
  CHECK(tall.result() == unsupported);
}

TEST_CASE("cublasLt refuses layouts that do not fit, and values of another size") {
  BiasedCall narrow, other;
  cublas_lt().create_layout(&narrow.a, CUDA_R_32F, 2, 4, 1);
  CHECK(narrow.result() == invalid);
  cublas_lt().create_layout(&other.b, CUDA_R_32F, 5, 3, 5);
  CHECK(other.result() == invalid);
  CHECK(other.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint64_t{4}) == CUBLAS_STATUS_INVALID_VALUE);
}

TEST_CASE("cublasLt reads a bias of every row, and only what is in use") {
  CHECK_THAT(BiasedCall().result([](BiasedCall& c) { c.biases = 1; }), Contains("cuBLAS reads 8 bytes"));
}

TEST_CASE("cublasLt multiplies the types that cuBLAS does, with factors of the precision") {
  std::string known;
  const auto types = {std::pair(CUDA_R_32F, "f"), {CUDA_R_64F, "d"}, {CUDA_R_16BF, "b"}, {CUDA_R_16F, "h"}};
  cublasHandle_t handle = nullptr;
  cublas().create(&handle);
  for (const auto& [compute, name] :
       {std::pair(CUBLAS_COMPUTE_32F, "f32"), {CUBLAS_COMPUTE_32F_FAST_TF32, "tf32"}, {CUBLAS_COMPUTE_64F, "f64"}})
    for (const auto& [type, text] : types)
      for (const auto& [type_d, text_d] : types)
        for (const auto& [factors, text_factors] : types) {
          cublasLtMatmulHeuristicResult_t best = {};
          if (BiasedCall(compute, type, type_d, factors).find(handle, best) == CUBLAS_STATUS_SUCCESS)
            known += std::string(name) + ":" + text + text_d + text_factors + " ";
        }
  CHECK(known == "f32:fff f32:bff f32:bbf f32:hff f32:hhf tf32:fff f64:ddd ");
}
