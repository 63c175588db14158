// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <cstdlib>

#include "weft/engine/kernels/cuda/cuda_backend.h"

namespace weft {
namespace {

void check_driver() {
  int driver = 0, program = 0;
  cudaDriverGetVersion(&driver);  // 0 if there is none
  cudaRuntimeGetVersion(&program);
  const auto version = [](int number) { return text(number / 1000) + "." + text(number / 10 % 100); };
  require(driver == 0, "cuda: the driver of this machine is for CUDA ", version(driver),
          ", and this program needs one for CUDA ", version(program), "; install a newer driver");
}

}  // namespace

// Returns nothing unless there is a card that these kernels run on: Ampere or later. Before the first call of CUDA it
// asks for all kernels to be loaded at once: loading one later waits for the card, which may wait for a peer, and
// meanwhile holds up every other call of this process. An Error if a driver is too old to say what there is.
std::unique_ptr<Backend> make_cuda_backend() {
  setenv("CUDA_MODULE_LOADING", "EAGER", false);
  int count = 0, generation = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorInsufficientDriver) check_driver();
  const bool answers = counted == cudaSuccess && count > 0 &&
                       cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess;
  cudaGetLastError();
  return answers && generation >= 8 ? std::make_unique<CudaBackend>() : nullptr;
}

}  // namespace weft
