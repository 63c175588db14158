// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/convolution_plan.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/kernels/cuda/graph.h"

namespace weft::cuda {
namespace {

constexpr size_t largest_workspace = size_t{128} << 20;  // as much as unfolded images take

// A refusal is no error; all else that fails is.
bool is_supported(cudnnStatus_t status, const char* call) {
  if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) return false;
  check(status, call);
  return true;
}

bool fits_in_int(const Convolution& c) {
  return std::ranges::all_of(std::bit_cast<ConvolutionPlans::Numbers>(c),
                             [](int64_t n) { return n <= std::numeric_limits<int>::max(); });
}

// cuDNN may have other kernels for other addresses, so bits would depend on where a tensor is.
Tensor aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data()) % 16 == 0 ? x : x.clone(); }

// Calls f(function, its operands, its result, algorithm) with those of x, w and y that the pass reads and writes.
template <class X, class W, class F>
auto in_pass(const Cudnn& dnn, ConvolutionPass pass, const X& x, const W& w, const X& y, const F& f) {
  switch (pass) {
    case ConvolutionPass::forward: return f(dnn.forward, x, w, y, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
    case ConvolutionPass::input_gradient: return f(dnn.input_gradient, w, y, x, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
    case ConvolutionPass::weight_gradient: break;
  }
  return f(dnn.weight_gradient, x, y, w, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
}

template <class Descriptor> struct Described {
  Descriptor descriptor;
  Tensor& values;
};

}  // namespace

ConvolutionDescriptors::ConvolutionDescriptors(const Cudnn& dnn, const Convolution& c, DType type, bool tf32) {
  check(dnn.create_tensor(&images), "cudnnCreateTensorDescriptor");
  check(dnn.create_tensor(&windows), "cudnnCreateTensorDescriptor");
  check(dnn.create_filter(&weights), "cudnnCreateFilterDescriptor");
  check(dnn.create_convolution(&convolution), "cudnnCreateConvolutionDescriptor");
  supported_ = type != DType::f64 && c.height * c.width > 0 && fits_in_int(c) && describe(dnn, c, type, tf32);
}

bool ConvolutionDescriptors::describe(const Cudnn& dnn, const Convolution& c, DType type, bool tf32) const {
  const cudnnDataType_t data = type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  const cudnnMathType_t math = type == DType::bf16 || tf32 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  const auto tensor = [&](cudnnTensorDescriptor_t to, int64_t channels, int64_t height, int64_t width) {
    return is_supported(
        dnn.set_tensor(to, CUDNN_TENSOR_NHWC, data, int(c.batch), int(channels), int(height), int(width)),
        "cudnnSetTensor4dDescriptor");
  };
  int extents[4] = {};
  return tensor(images, c.channels, c.height, c.width) && tensor(windows, c.out_channels, c.out_height, c.out_width) &&
         is_supported(dnn.set_filter(weights, data, CUDNN_TENSOR_NHWC, int(c.out_channels), int(c.channels),
                                     int(c.kernel_height), int(c.kernel_width)),
                      "cudnnSetFilter4dDescriptor") &&
         is_supported(
             dnn.set_convolution(convolution, int(c.pad_y), int(c.pad_x), int(c.stride_y), int(c.stride_x),
                                 int(c.dilation_y), int(c.dilation_x), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
             "cudnnSetConvolution2dDescriptor") &&
         is_supported(dnn.set_math(convolution, math), "cudnnSetConvolutionMathType") &&
         is_supported(dnn.output_extents(convolution, images, weights, extents, extents + 1, extents + 2, extents + 3),
                      "cudnnGetConvolution2dForwardOutputDim") &&
         extents[2] == c.out_height && extents[3] == c.out_width;  // other padding than on both sides alike
}

ConvolutionPlan::ConvolutionPlan(cudnnHandle_t handle, ConvolutionPass pass, const Convolution& c, DType type,
                                 bool tf32)
    : handle_(handle), pass_(pass), of_(*cudnn(), c, type, tf32), supported_(of_.are_supported()) {
  if (!supported_) return;
  const auto ask = [&](const auto& function, auto a, auto b, auto result, auto algorithm) {
    return function.workspace(handle_, a, b, of_.convolution, result, algorithm, &workspace_);
  };
  supported_ = is_supported(in_pass(*cudnn(), pass_, of_.images, of_.weights, of_.windows, ask),
                            "the size of a convolution's workspace") &&
               workspace_ <= largest_workspace;
}

// Weft's weights are (kernel_height, kernel_width, channels, out_channels).
bool ConvolutionPlan::run(Tensor x, Tensor w, Tensor y) {
  if (!supported_) return false;
  Backend& card = backend(Device::cuda);
  const Shape& axes = w.shape();
  Tensor images = aligned(x), windows = aligned(y);
  Tensor weights({axes[3], axes[0], axes[1], axes[2]}, w.dtype(), Device::cuda);
  if (pass_ != ConvolutionPass::weight_gradient) card.permute(w, {3, 0, 1, 2}, weights);
  const Scratch<char> workspace(static_cast<int64_t>(workspace_));
  const auto run = [&](const auto& function, const auto& a, const auto& b, const auto& result, auto algorithm) {
    const float one = 1, zero = 0;
    return function.run(handle_, &one, a.descriptor, a.values.data(), b.descriptor, b.values.data(), of_.convolution,
                        algorithm, workspace.data(), workspace_, &zero, result.descriptor, result.values.mutate());
  };
  supported_ = is_supported(in_pass(*cudnn(), pass_, Described<cudnnTensorDescriptor_t>{of_.images, images},
                                    Described<cudnnFilterDescriptor_t>{of_.weights, weights},
                                    Described<cudnnTensorDescriptor_t>{of_.windows, windows}, run),
                            "a convolution of cuDNN");
  if (!supported_) return false;
  if (pass_ == ConvolutionPass::forward) y.copy_from(windows);  // does nothing if that is aligned itself
  if (pass_ == ConvolutionPass::input_gradient) x.copy_from(images);
  if (pass_ == ConvolutionPass::weight_gradient) card.permute(weights, {1, 2, 3, 0}, w);
  return true;
}

ConvolutionPlans::ConvolutionPlans(Context& context) {
  if (context.capturing()) fail_in_graph("start cuDNN");
  check(cudnn()->create(&handle_), "cudnnCreate");
  check(cudnn()->set_stream(handle_, context.stream()), "cudnnSetStream");
}

ConvolutionPlan& ConvolutionPlans::plan(ConvolutionPass pass, const Convolution& c, DType type, bool tf32) {
  const Key key(pass, type, tf32, std::bit_cast<Numbers>(c));
  return plans_.try_emplace(key, handle_, pass, c, type, tf32).first->second;
}

ConvolutionPlans& Context::convolutions() {
  if (!convolutions_) convolutions_ = new ConvolutionPlans(*this);
  return *convolutions_;
}

bool convolve_by_cudnn(ConvolutionPass pass, const Convolution& c, bool tf32, const Tensor& x, const Tensor& w,
                       const Tensor& y) {
  return cudnn() && context().convolutions().plan(pass, c, x.dtype(), tf32).run(x, w, y);
}

}  // namespace weft::cuda
