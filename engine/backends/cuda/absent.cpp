// This build has no CUDA.
#include "engine/backend.h"

std::unique_ptr<weft::Backend> weft::make_cuda_backend() { return nullptr; }
