// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/library.h"

#include <dlfcn.h>

#include "weft/engine/tensor/error.h"

namespace weft::cuda {
namespace {

void* load(const std::string& file, const std::string& product) {
  if (void* loaded = dlopen(file.c_str(), RTLD_LAZY)) return loaded;
  const std::string reason = dlerror();
  if (void* loaded = dlopen((WEFT_CUDA_LIBRARIES "/" + file).c_str(), RTLD_LAZY)) return loaded;
  fail({"cuda: ", file, " cannot be loaded: ", reason, ", and from the toolkit: ", dlerror(), "; install ", product,
        ", or name the folder that holds it in LD_LIBRARY_PATH"});
}

}  // namespace

Library::Library(std::string file, std::string product)
    : file_(std::move(file)), product_(std::move(product)), loaded_(load(file_, product_)) {}

void* Library::address_of(const char* name) const {
  void* const address = dlsym(loaded_, name);
  require(address, "cuda: ", file_, " has no ", name, "; Weft needs ", product_);
  return address;
}

}  // namespace weft::cuda
