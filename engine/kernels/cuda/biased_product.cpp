// SPDX-License-Identifier: Apache-2.0
// The heuristics of cublasLt take the host longer than a launch, so each context asks once for each product. NVIDIA
// promises the same bits at every run for one version of cuBLAS and one kind of card, if the workspace is the caller's;
// ranks ask the same and so get the same algorithm.
#include "weft/engine/kernels/cuda/biased_product.h"

#include <algorithm>
#include <initializer_list>

#include "weft/engine/kernels/cuda/blas_lt.h"
#include "weft/engine/kernels/cuda/context.h"

namespace weft::cuda {
namespace {

// Of every operand, in bytes, which NVIDIA recommends for tensor cores. Only slices may have less. The algorithms for
// these would be slower, and addresses would be part of the choice.
constexpr uint32_t alignment = 16;

bool aligned(std::initializer_list<const void*> operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [](const void* x) { return reinterpret_cast<uintptr_t>(x) % alignment == 0; });
}

template <class Value> void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what, Value value) {
  check(cublas_lt().set_product(product, what, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class Value>
void set(cublasLtMatmulPreference_t wish, cublasLtMatmulPreferenceAttributes_t what, Value value) {
  check(cublas_lt().set_preference(wish, what, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublas_lt().create_layout(&made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
        "cublasLtMatrixLayoutCreate");
  return made;
}

BiasedAlgorithm described(const BiasedProduct& p) {
  BiasedAlgorithm as;
  check(cublas_lt().create_product(&as.product, p.compute, p.factor_type), "cublasLtMatmulDescCreate");
  set(as.product, CUBLASLT_MATMUL_DESC_TRANSA, p.operation_a);
  set(as.product, CUBLASLT_MATMUL_DESC_TRANSB, p.operation_b);
  set(as.product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  const bool turned_a = p.operation_a == CUBLAS_OP_T, turned_b = p.operation_b == CUBLAS_OP_T;
  as.a = layout(p.type, turned_a ? p.k : p.m, turned_a ? p.m : p.k, p.lda);
  as.b = layout(p.type, turned_b ? p.n : p.k, turned_b ? p.k : p.n, p.ldb);
  as.d = layout(p.type, p.m, p.n, p.m);
  return as;
}

// Parts of a sum are not rounded to bf16, as in Context::blas().
cublasLtMatmulPreference_t wishes() {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublas_lt().create_preference(&made), "cublasLtMatmulPreferenceCreate");
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Context::blas_workspace_bytes});
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto matrix : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(made, matrix, alignment);
  return made;
}

BiasedAlgorithm chosen(const BiasedProduct& p, cublasLtHandle_t handle) {
  BiasedAlgorithm as = described(p);
  // The heuristics do not read the bias, but take its alignment from its address: that of every bias that follows.
  set(as.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, uintptr_t{alignment});
  const cublasLtMatmulPreference_t preference = wishes();
  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  const cublasStatus_t status =
      cublas_lt().find_algorithms(handle, as.product, as.a, as.b, as.d, as.d, preference, 1, &best, &count);
  check(cublas_lt().destroy_preference(preference), "cublasLtMatmulPreferenceDestroy");
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, "cublasLtMatmulAlgoGetHeuristic");
  as.found = status == CUBLAS_STATUS_SUCCESS && count > 0 && best.state == CUBLAS_STATUS_SUCCESS;
  as.algorithm = best.algo;
  return as;
}

}  // namespace

bool BiasedProduct::run(const void* a, const void* b, const void* bias, void* d, const void* one,
                        const void* zero) const {
  if (!aligned({a, b, bias, d})) return false;
  Context& here = context();
  const auto handle = reinterpret_cast<cublasLtHandle_t>(here.blas());  // which is also one of cublasLt
  std::map<BiasedProduct, BiasedAlgorithm>& known = here.biased_products();
  auto found = known.find(*this);
  if (found == known.end()) found = known.emplace(*this, chosen(*this, handle)).first;
  const BiasedAlgorithm& as = found->second;
  if (!as.found) return false;
  set(as.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  check(cublas_lt().multiply(handle, as.product, one, a, as.a, b, as.b, zero, d, as.d, d, as.d, &as.algorithm,
                             here.blas_workspace(), Context::blas_workspace_bytes, here.stream()),
        "cublasLtMatmul");
  return true;
}

}  // namespace weft::cuda
