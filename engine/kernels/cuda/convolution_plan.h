// SPDX-License-Identifier: Apache-2.0
#pragma once
// Convolutions by cuDNN, if the machine has it: how one is computed is asked once for each geometry.
//
// The algorithms are fixed, and NVIDIA documents that they give the same bits in each run. A faster one may be another
// for another number of images.
#include <array>
#include <map>
#include <tuple>

#include "weft/engine/kernels/convolution_shape.h"
#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/kernels/cuda/dnn.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::cuda {

enum class ConvolutionPass { forward, input_gradient, weight_gradient };

// Images are NHWC, and weights (out_channels, kernel_height, kernel_width, channels).
class ConvolutionDescriptors {
 public:
  ConvolutionDescriptors(const Cudnn& dnn, const Convolution& c, DType type, bool tf32);

  bool are_supported() const { return supported_; }

  cudnnTensorDescriptor_t images = nullptr, windows = nullptr;
  cudnnFilterDescriptor_t weights = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;

 private:
  bool describe(const Cudnn& dnn, const Convolution& c, DType type, bool tf32) const;

  bool supported_ = false;
};

class ConvolutionPlan {
 public:
  ConvolutionPlan(cudnnHandle_t handle, ConvolutionPass pass, const Convolution& c, DType type, bool tf32);

  // False if cuDNN does not support it.
  bool run(Tensor x, Tensor w, Tensor y);

 private:
  const cudnnHandle_t handle_;
  const ConvolutionPass pass_;
  const ConvolutionDescriptors of_;
  size_t workspace_ = 0;  // bytes
  bool supported_;
};

// Those of a context.
class ConvolutionPlans {
 public:
  using Numbers = std::array<int64_t, sizeof(Convolution) / sizeof(int64_t)>;  // of a geometry

  explicit ConvolutionPlans(Context& context);
  ConvolutionPlan& plan(ConvolutionPass pass, const Convolution& c, DType type, bool tf32);

 private:
  using Key = std::tuple<ConvolutionPass, DType, bool, Numbers>;

  cudnnHandle_t handle_ = nullptr;
  std::map<Key, ConvolutionPlan> plans_;
};

// Of images x and weights w to windows y: which of them is the result depends on the pass. False if there is no cuDNN,
// or if it does not support this; then nothing is written.
bool convolve_by_cudnn(ConvolutionPass pass, const Convolution& c, bool tf32, const Tensor& x, const Tensor& w,
                       const Tensor& y);

}  // namespace weft::cuda
