// SPDX-License-Identifier: Apache-2.0
// The part of cublasLt that Weft calls, as a library of its own. An algorithm is for what it was asked for, and refuses
// everything else: other extents, types and epilogues, less aligned memory, less workspace.
#include <cublasLt.h>

#include <cstring>
#include <utility>

#include "tests/emulated_card/product.h"

struct weft_emulated_lt_layout {
  cudaDataType_t type;
  int64_t rows, columns, ld;
  bool operator==(const weft_emulated_lt_layout&) const = default;
};

struct weft_emulated_lt_product {
  cublasComputeType_t compute;
  cudaDataType_t factor_type;
  cublasOperation_t operation_a = CUBLAS_OP_N, operation_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

struct weft_emulated_lt_preference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // of a, b, c and d
};

namespace {

using weft::emulated::is_known;
using weft::emulated::operand;
using weft::emulated::Product;

// As the real one: values have exactly the size of what is set.
template <class Value> cublasStatus_t set(Value& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

bool aligned(const void* address, uint64_t bytes) { return reinterpret_cast<uintptr_t>(address) % bytes == 0; }
uint64_t alignment(const void* address) {
  return aligned(address, 256) ? 256 : reinterpret_cast<uintptr_t>(address) & -reinterpret_cast<uintptr_t>(address);
}

// A product as an algorithm knows it.
struct Case {
  int64_t m, n, k;
  cublasLtMatrixLayout_t a, b, d;
  cublasLtMatmulDesc_t product;

  Case(cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d)
      : m(d->rows),
        n(d->columns),
        k(turned(product->operation_a) ? a->rows : a->columns),
        a(a),
        b(b),
        d(d),
        product(product) {}

  static bool turned(cublasOperation_t operation) { return operation == CUBLAS_OP_T; }
  static bool fits(const weft_emulated_lt_layout& x, cublasOperation_t operation, int64_t rows, int64_t columns) {
    if (turned(operation)) std::swap(rows, columns);
    return x.rows == rows && x.columns == columns && rows > 0 && columns > 0 && x.ld >= rows;
  }
  cublasStatus_t status(cublasLtMatrixLayout_t c) const {
    if (!fits(*a, product->operation_a, m, k) || !fits(*b, product->operation_b, k, n) ||
        !fits(*d, CUBLAS_OP_N, m, n) || *c != *d)
      return CUBLAS_STATUS_INVALID_VALUE;
    const cudaDataType_t factors = product->compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F;
    const bool known =
        a->type == b->type && is_known(product->compute, a->type, d->type) && product->factor_type == factors;
    const bool finished = product->epilogue == CUBLASLT_EPILOGUE_DEFAULT || product->epilogue == CUBLASLT_EPILOGUE_BIAS;
    return known && finished ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // Of everything but the alignments and the workspace.
  uint64_t key() const {
    uint64_t mixed = 0;
    const auto mix = [&](auto... values) {
      ((mixed = (mixed ^ static_cast<uint64_t>(values)) * 0x9e3779b97f4a7c15u), ...);
    };
    for (const auto& x : {*a, *b, *d}) mix(x.type, x.rows, x.columns, x.ld);
    mix(product->compute, product->operation_a, product->operation_b, product->epilogue);
    return mixed;
  }
};

// The words of an algorithm: Case::key(), the bytes of workspace, and the alignments of a, b, c, d and the bias.
constexpr int workspace_word = 1, alignments_word = 2;

}  // namespace

extern "C" {

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product, cublasComputeType_t compute,
                                        cudaDataType_t factor_type) {
  *product = new weft_emulated_lt_product{compute, factor_type};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(product->operation_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(product->operation_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(product->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(product->bias, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
  *layout = new weft_emulated_lt_layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new weft_emulated_lt_preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(preference->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(preference->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(preference->alignments[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

// There is none for 65 rows, so that callers need another way.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const Case what(product, a, b, d);
  if (const cublasStatus_t status = what.status(c); status != CUBLAS_STATUS_SUCCESS) return status;
  const uint64_t whole = static_cast<uint64_t>(what.m * what.n) * 4;
  cublasLtMatmulHeuristicResult_t best = {};
  best.workspaceSize = whole <= preference->workspace ? whole : 0;
  uint64_t* word = best.algo.data;
  *word++ = what.key();
  *word++ = best.workspaceSize;
  for (const uint32_t asked : preference->alignments) *word++ = asked;
  *word = product->bias ? alignment(product->bias) : 256;
  *found = what.m == 65 ? 0 : 1;
  if (*found > 0) *results = best;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t layout_a, const void* b, cublasLtMatrixLayout_t layout_b,
                              const void* beta, const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!stream->is_current()) return CUBLAS_STATUS_EXECUTION_FAILED;
  const Case what(product, layout_a, layout_b, layout_d);
  if (const cublasStatus_t status = what.status(layout_c); status != CUBLAS_STATUS_SUCCESS) return status;
  const void* const bias = product->epilogue == CUBLASLT_EPILOGUE_BIAS ? product->bias : nullptr;
  const uint64_t needed = algorithm->data[workspace_word];
  bool fits = algorithm->data[0] == what.key() && needed <= workspace_bytes && aligned(workspace, 256) && c == d &&
              (bias || product->epilogue == CUBLASLT_EPILOGUE_DEFAULT);
  const uint64_t* word = algorithm->data + alignments_word;
  for (const void* address : {a, b, c, static_cast<const void*>(d), bias}) fits = fits && aligned(address, *word++);
  if (!fits) return CUBLAS_STATUS_INVALID_VALUE;
  const Product work{what.m,
                     what.n,
                     what.k,
                     1,
                     operand(a, layout_a->type, product->operation_a, layout_a->ld),
                     operand(b, layout_b->type, product->operation_b, layout_b->ld),
                     d,
                     layout_d->type,
                     layout_d->ld,
                     0,
                     product->compute == CUBLAS_COMPUTE_32F_FAST_TF32,
                     bias};
  const auto enqueue = [&](auto x, auto y) {
    stream->enqueue_product([=] {
      stream->access(workspace, needed, true, "cublasLt");
      work.access(stream);
      work.run(x, y);
    });
  };
  if (product->factor_type == CUDA_R_64F)
    enqueue(*static_cast<const double*>(alpha), *static_cast<const double*>(beta));
  else
    enqueue(*static_cast<const float*>(alpha), *static_cast<const float*>(beta));
  return CUBLAS_STATUS_SUCCESS;
}
}
