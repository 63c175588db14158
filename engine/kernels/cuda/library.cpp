// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/library.h"

#include <dlfcn.h>

#include "weft/engine/tensor/error.h"

namespace weft::cuda {
namespace {

// Null if it is not found; `reason` says why.
void* open(const std::string& file, std::string& reason) {
  if (void* loaded = dlopen(file.c_str(), RTLD_LAZY)) return loaded;
  reason = dlerror();
  if (void* loaded = dlopen((WEFT_CUDA_LIBRARIES "/" + file).c_str(), RTLD_LAZY)) return loaded;
  reason += std::string(", and from the toolkit: ") + dlerror();
  return nullptr;
}

void* load(const std::string& file, const std::string& product) {
  std::string reason;
  if (void* loaded = open(file, reason)) return loaded;
  fail({"cuda: ", file, " cannot be loaded: ", reason, "; install ", product,
        ", or name the folder that holds it in LD_LIBRARY_PATH"});
}

}  // namespace

Library::Library(std::string file, std::string product)
    : file_(std::move(file)), product_(std::move(product)), loaded_(load(file_, product_)) {}

bool Library::is_found(const std::string& file) {
  std::string reason;
  return open(file, reason) != nullptr;
}

void* Library::address_of(const char* name) const {
  void* const address = dlsym(loaded_, name);
  require(address, "cuda: ", file_, " has no ", name, "; Weft needs ", product_);
  return address;
}

}  // namespace weft::cuda
