// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN that Weft calls, as a separate library that is loaded with the first convolution.
#include "weft/engine/kernels/cuda/dnn.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tests/emulated_card/convolution.h"

namespace weft::cuda {

struct CudnnContext {
  cudaStream_t stream = nullptr;  // of the handle's card
};

namespace {

constexpr unsigned misaligned = 2003, too_small = 2006;

// Those of each pass that NVIDIA documents to give the same bits in each run, and for this layout, have this number.
cudnnStatus_t check(const Geometry& g, int algorithm) { return algorithm == 1 ? g.check() : CUDNN_STATUS_BAD_PARAM; }

cudnnStatus_t enqueue(cudnnHandle_t handle, const ConvolutionWork& work, int algorithm, size_t bytes) {
  if (!handle || !handle->stream) return CUDNN_STATUS_NOT_INITIALIZED;
  const cudaStream_t stream = handle->stream;
  if (!stream->is_current()) return CUDNN_STATUS_EXECUTION_FAILED;
  if (const cudnnStatus_t wrong = check(work.g, algorithm)) return wrong;
  for (const void* const data : {work.x, work.w, work.y})
    if (!data || reinterpret_cast<uintptr_t>(data) % 16 != 0) return cudnnStatus_t(misaligned);
  if (!work.workspace || bytes < work.g.workspace()) return cudnnStatus_t(too_small);
  stream->enqueue_product([work, stream] {
    work.access(stream);
    work.g.x.type == CUDNN_DATA_FLOAT ? work.run<float>() : work.run<BFloat16>();
  });
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t tell_workspace(const Geometry& g, int algorithm, size_t* bytes) {
  const cudnnStatus_t wrong = check(g, algorithm);
  if (!wrong) *bytes = g.workspace();
  return wrong;
}

float number(const void* factor) { return *static_cast<const float*>(factor); }

template <class Descriptor> cudnnStatus_t create(Descriptor** descriptor) {
  *descriptor = new Descriptor();
  return CUDNN_STATUS_SUCCESS;
}

// The real one also refuses 2^31 values and more.
cudnnStatus_t check_extents(int a, int b, int c, int d) {
  if (std::min({a, b, c, d}) < 1) return CUDNN_STATUS_BAD_PARAM;
  const double size = double(a) * b * c * d;
  return size > std::numeric_limits<int>::max() ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return 90000; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (unsigned(status)) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case misaligned: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case too_small: return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED: another card is current";
    default: return "unknown";
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return create(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (!stream->is_current()) return CUDNN_STATUS_EXECUTION_FAILED;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* to) { return create(to); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* to) { return create(to); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* to) { return create(to); }

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t to, cudnnTensorFormat_t format, cudnnDataType_t type,
                                         int images, int channels, int height, int width) {
  if (const cudnnStatus_t wrong = check_extents(images, channels, height, width)) return wrong;
  *to = {format, type, images, channels, height, width};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t to, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int out_channels, int channels, int height, int width) {
  if (const cudnnStatus_t wrong = check_extents(out_channels, channels, height, width)) return wrong;
  *to = {type, format, out_channels, channels, height, width};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t to, int pad_y, int pad_x, int stride_y,
                                              int stride_x, int dilation_y, int dilation_x, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  if (std::min(pad_y, pad_x) < 0 || std::min({stride_y, stride_x, dilation_y, dilation_x}) < 1)
    return CUDNN_STATUS_BAD_PARAM;
  *to = {pad_y, pad_x, stride_y, stride_x, dilation_y, dilation_x, mode, compute, CUDNN_DEFAULT_MATH};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t to, cudnnMathType_t math) {
  to->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t x,
                                                    cudnnFilterDescriptor_t w, int* images, int* channels, int* height,
                                                    int* width) {
  const Geometry g{*x, *w, *c, {}};
  if (x->images == 0 || w->out_channels == 0 || c->stride_y == 0 || x->channels != w->channels)
    return CUDNN_STATUS_BAD_PARAM;
  *images = x->images, *channels = w->out_channels, *height = g.out_height(), *width = g.out_width();
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c,
                                                      cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t* bytes) {
  return tell_workspace({*x, *w, *c, *y}, algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t c,
                                                           cudnnTensorDescriptor_t x,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return tell_workspace({*x, *w, *c, *y}, algorithm, bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                             cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t c,
                                                             cudnnFilterDescriptor_t w,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return tell_workspace({*x, *w, *c, *y}, algorithm, bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dx,
                                      const void* x, cudnnFilterDescriptor_t dw, const void* w,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t bytes, const void* beta, cudnnTensorDescriptor_t dy,
                                      void* y) {
  return enqueue(handle, {{*dx, *dw, *c, *dy}, Result::windows, x, w, y, y, workspace, number(alpha), number(beta)},
                 algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t dw,
                                           const void* w, cudnnTensorDescriptor_t dy, const void* y,
                                           cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace, size_t bytes, const void* beta, cudnnTensorDescriptor_t dx,
                                           void* x) {
  return enqueue(handle, {{*dx, *dw, *c, *dy}, Result::images, x, w, y, x, workspace, number(alpha), number(beta)},
                 algorithm, bytes);
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dx,
                                             const void* x, cudnnTensorDescriptor_t dy, const void* y,
                                             cudnnConvolutionDescriptor_t c, cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t dw, void* w) {
  return enqueue(handle, {{*dx, *dw, *c, *dy}, Result::weights, x, w, y, w, workspace, number(alpha), number(beta)},
                 algorithm, bytes);
}
}

// The program finds them by their names, without types.
template <auto function, class Found> constexpr bool is = std::is_same_v<decltype(function), Found>;
static_assert(is<&cudnnGetVersion, decltype(Cudnn::version)> &&
              is<&cudnnGetErrorString, decltype(Cudnn::status_text)> && is<&cudnnCreate, decltype(Cudnn::create)> &&
              is<&cudnnSetStream, decltype(Cudnn::set_stream)>);
static_assert(is<&cudnnCreateTensorDescriptor, decltype(Cudnn::create_tensor)> &&
              is<&cudnnCreateFilterDescriptor, decltype(Cudnn::create_filter)> &&
              is<&cudnnCreateConvolutionDescriptor, decltype(Cudnn::create_convolution)>);
static_assert(is<&cudnnSetTensor4dDescriptor, decltype(Cudnn::set_tensor)> &&
              is<&cudnnSetFilter4dDescriptor, decltype(Cudnn::set_filter)> &&
              is<&cudnnSetConvolution2dDescriptor, decltype(Cudnn::set_convolution)> &&
              is<&cudnnSetConvolutionMathType, decltype(Cudnn::set_math)> &&
              is<&cudnnGetConvolution2dForwardOutputDim, decltype(Cudnn::output_extents)>);
template <auto workspace, auto run, class Pass>
constexpr bool are = is<workspace, decltype(Pass::workspace)>&& is<run, decltype(Pass::run)>;
static_assert(are<&cudnnGetConvolutionForwardWorkspaceSize, &cudnnConvolutionForward, decltype(Cudnn::forward)> &&
              are<&cudnnGetConvolutionBackwardDataWorkspaceSize, &cudnnConvolutionBackwardData,
                  decltype(Cudnn::input_gradient)> &&
              are<&cudnnGetConvolutionBackwardFilterWorkspaceSize, &cudnnConvolutionBackwardFilter,
                  decltype(Cudnn::weight_gradient)>);

}  // namespace weft::cuda
