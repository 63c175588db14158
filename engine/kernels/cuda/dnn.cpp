// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/dnn.h"

#include <cstdlib>
#include <memory>

#include "weft/engine/kernels/cuda/library.h"
#include "weft/engine/tensor/error.h"

namespace weft::cuda {

Cudnn::Cudnn(const std::string& file) {
  const Library library(file, "cuDNN 9");
  library.find(version, "cudnnGetVersion");
  library.find(status_text, "cudnnGetErrorString");
  library.find(create, "cudnnCreate");
  library.find(set_stream, "cudnnSetStream");
  library.find(create_tensor, "cudnnCreateTensorDescriptor");
  library.find(create_filter, "cudnnCreateFilterDescriptor");
  library.find(create_convolution, "cudnnCreateConvolutionDescriptor");
  library.find(set_tensor, "cudnnSetTensor4dDescriptor");
  library.find(set_filter, "cudnnSetFilter4dDescriptor");
  library.find(set_convolution, "cudnnSetConvolution2dDescriptor");
  library.find(set_math, "cudnnSetConvolutionMathType");
  library.find(output_extents, "cudnnGetConvolution2dForwardOutputDim");
  library.find(forward.workspace, "cudnnGetConvolutionForwardWorkspaceSize");
  library.find(forward.run, "cudnnConvolutionForward");
  library.find(input_gradient.workspace, "cudnnGetConvolutionBackwardDataWorkspaceSize");
  library.find(input_gradient.run, "cudnnConvolutionBackwardData");
  library.find(weight_gradient.workspace, "cudnnGetConvolutionBackwardFilterWorkspaceSize");
  library.find(weight_gradient.run, "cudnnConvolutionBackwardFilter");
}

static std::unique_ptr<const Cudnn> load() {
  const char* const chosen = std::getenv("WEFT_CUDNN");
  const std::string file = chosen ? chosen : WEFT_CUDNN_LIBRARY;
  if (file.empty() || (!chosen && !Library::is_found(file))) return nullptr;
  return std::make_unique<Cudnn>(file);
}

const Cudnn* cudnn() {
  static const std::unique_ptr<const Cudnn> loaded = load();
  return loaded.get();
}

void check(cudnnStatus_t code, const char* call) {
  if (code != CUDNN_STATUS_SUCCESS)
    fail({"cuda: ", call, " failed: ", cudnn()->status_text(code), "; with WEFT_CUDNN= Weft convolves without cuDNN"});
}

}  // namespace weft::cuda
