// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/blas.h"

#include <dlfcn.h>

#include "weft/engine/tensor/error.h"

namespace weft::cuda {
namespace {

// Loads the library from where the linker would find it, or else from the toolkit that Weft was built with.
void* load(const std::string& library) {
  if (void* loaded = dlopen(library.c_str(), RTLD_LAZY)) return loaded;
  const std::string reason = dlerror();
  if (void* loaded = dlopen((WEFT_CUDA_LIBRARIES "/" + library).c_str(), RTLD_LAZY)) return loaded;
  fail({"cuda: ", library, " cannot be loaded: ", reason, ", and from the toolkit: ", dlerror(),
        "; install cuBLAS, or name the folder that holds it in LD_LIBRARY_PATH"});
}

}  // namespace

Cublas::Cublas(const std::string& library) {
  void* const loaded = load(library);
  const auto find = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(loaded, name));
    require(function, "cuda: ", library, " has no ", name, "; Weft needs cuBLAS 12 or later");
  };
  find(create, "cublasCreate_v2");
  find(set_stream, "cublasSetStream_v2");
  find(set_workspace, "cublasSetWorkspace_v2");
  find(set_math_mode, "cublasSetMathMode");
  find(set_pointer_mode, "cublasSetPointerMode_v2");
  find(gemm, "cublasGemmEx_64");
  find(gemm_strided_batched, "cublasGemmStridedBatchedEx_64");
  find(status_text, "cublasGetStatusString");
}

const Cublas& cublas() {
  static const Cublas loaded("libcublas.so." + text(CUBLAS_VER_MAJOR));
  return loaded;
}

void check(cublasStatus_t code, const char* call) {
  if (code != CUBLAS_STATUS_SUCCESS) fail({"cuda: ", call, " failed: ", cublas().status_text(code)});
}

}  // namespace weft::cuda
