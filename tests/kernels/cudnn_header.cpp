// SPDX-License-Identifier: Apache-2.0
// Weft's declarations of cuDNN are NVIDIA's. This is compiled where cuDNN's headers are.
#include <cudnn.h>

#include <type_traits>

#include "weft/engine/kernels/cuda/dnn.h"

namespace {

namespace ours = weft::cuda;

// Whether a caller passes both alike. Pointers to what has no members here, and enumerations, have types of our own.
template <class A, class B> constexpr bool alike = std::is_same_v<A, B>;
template <class A, class B> constexpr bool alike<A*, B*> = std::is_same_v<A*, B*> || std::is_class_v<A>;
template <class A, class B>
requires(std::is_enum_v<A>&& std::is_enum_v<B>) constexpr bool alike<A, B> = sizeof(A) == sizeof(B);
template <class A, class B>
requires(std::is_class_v<A>&& std::is_class_v<B>) constexpr bool alike<A**, B**> = true;
template <class A, class... P, class B, class... Q>
requires(sizeof...(P) == sizeof...(Q)) constexpr bool alike<A (*)(P...), B (*)(Q...)> = alike<A, B> &&
                                                                                        (alike<P, Q> && ...);

template <auto theirs, class Ours> constexpr bool is = alike<Ours, decltype(theirs)>;
static_assert(is<&cudnnGetVersion, decltype(ours::Cudnn::version)>);
static_assert(is<&cudnnGetErrorString, decltype(ours::Cudnn::status_text)>);
static_assert(is<&cudnnCreate, decltype(ours::Cudnn::create)>);
static_assert(is<&cudnnSetStream, decltype(ours::Cudnn::set_stream)>);
static_assert(is<&cudnnCreateTensorDescriptor, decltype(ours::Cudnn::create_tensor)>);
static_assert(is<&cudnnCreateFilterDescriptor, decltype(ours::Cudnn::create_filter)>);
static_assert(is<&cudnnCreateConvolutionDescriptor, decltype(ours::Cudnn::create_convolution)>);
static_assert(is<&cudnnSetTensor4dDescriptor, decltype(ours::Cudnn::set_tensor)>);
static_assert(is<&cudnnSetFilter4dDescriptor, decltype(ours::Cudnn::set_filter)>);
static_assert(is<&cudnnSetConvolution2dDescriptor, decltype(ours::Cudnn::set_convolution)>);
static_assert(is<&cudnnSetConvolutionMathType, decltype(ours::Cudnn::set_math)>);
static_assert(is<&cudnnGetConvolution2dForwardOutputDim, decltype(ours::Cudnn::output_extents)>);

template <auto workspace, auto run, class Pass>
constexpr bool are = is<workspace, decltype(Pass::workspace)>&& is<run, decltype(Pass::run)>;
static_assert(are<&cudnnGetConvolutionForwardWorkspaceSize, &cudnnConvolutionForward, decltype(ours::Cudnn::forward)>);
static_assert(are<&cudnnGetConvolutionBackwardDataWorkspaceSize, &cudnnConvolutionBackwardData,
                  decltype(ours::Cudnn::input_gradient)>);
static_assert(are<&cudnnGetConvolutionBackwardFilterWorkspaceSize, &cudnnConvolutionBackwardFilter,
                  decltype(ours::Cudnn::weight_gradient)>);

#define IS_THEIRS(name) static_assert(unsigned{ours::name} == unsigned{::name})
IS_THEIRS(CUDNN_STATUS_SUCCESS);
IS_THEIRS(CUDNN_STATUS_NOT_INITIALIZED);
IS_THEIRS(CUDNN_STATUS_BAD_PARAM);
IS_THEIRS(CUDNN_STATUS_NOT_SUPPORTED);
IS_THEIRS(CUDNN_STATUS_EXECUTION_FAILED);
IS_THEIRS(CUDNN_TENSOR_NCHW);
IS_THEIRS(CUDNN_TENSOR_NHWC);
IS_THEIRS(CUDNN_DATA_FLOAT);
IS_THEIRS(CUDNN_DATA_BFLOAT16);
IS_THEIRS(CUDNN_DEFAULT_MATH);
IS_THEIRS(CUDNN_TENSOR_OP_MATH);
IS_THEIRS(CUDNN_FMA_MATH);
IS_THEIRS(CUDNN_CONVOLUTION);
IS_THEIRS(CUDNN_CROSS_CORRELATION);
IS_THEIRS(CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
IS_THEIRS(CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
IS_THEIRS(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);

}  // namespace
