// SPDX-License-Identifier: Apache-2.0
#pragma once
// cuDNN 9, loaded by the first convolution on a card if the machine has it. Declared here is what Weft calls of its C
// interface, so that it is not needed to build; tests/kernels/test_cuda_dnn.cpp compares with NVIDIA's headers.
#include <cuda_runtime_api.h>

#include <string>

namespace weft::cuda {

using cudnnHandle_t = struct CudnnContext*;
using cudnnTensorDescriptor_t = struct CudnnTensor*;
using cudnnFilterDescriptor_t = struct CudnnFilter*;
using cudnnConvolutionDescriptor_t = struct CudnnConvolution*;

enum cudnnStatus_t : unsigned {  // the thousands are the kind
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_NOT_INITIALIZED = 1001,
  CUDNN_STATUS_BAD_PARAM = 2000,
  CUDNN_STATUS_NOT_SUPPORTED = 3000,
  CUDNN_STATUS_INTERNAL_ERROR = 4000,
  CUDNN_STATUS_EXECUTION_FAILED = 5000,
};
enum cudnnTensorFormat_t : unsigned { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1 };
enum cudnnDataType_t : unsigned { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_DOUBLE = 1, CUDNN_DATA_BFLOAT16 = 9 };
// The default is not exact: it rounds f32 to TF32.
enum cudnnMathType_t : unsigned { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH = 1, CUDNN_FMA_MATH = 3 };
enum cudnnConvolutionMode_t : unsigned { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 };
enum cudnnConvolutionFwdAlgo_t : unsigned { CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1 };
enum cudnnConvolutionBwdDataAlgo_t : unsigned { CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1 };
enum cudnnConvolutionBwdFilterAlgo_t : unsigned { CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1 };

// A function of two operands, and the size of the workspace that it needs.
template <class A, class B, class Result, class Algorithm> struct CudnnPass {
  cudnnStatus_t (*workspace)(cudnnHandle_t, A, B, cudnnConvolutionDescriptor_t, Result, Algorithm, size_t* bytes);
  cudnnStatus_t (*run)(cudnnHandle_t, const void* alpha, A, const void* a, B, const void* b,
                       cudnnConvolutionDescriptor_t, Algorithm, void* workspace, size_t bytes, const void* beta, Result,
                       void* result);
};

// The functions of cuDNN that Weft calls. The library is never unloaded.
struct Cudnn {
  explicit Cudnn(const std::string& file);

  size_t (*version)();
  const char* (*status_text)(cudnnStatus_t);
  cudnnStatus_t (*create)(cudnnHandle_t*);
  cudnnStatus_t (*set_stream)(cudnnHandle_t, cudaStream_t);

  cudnnStatus_t (*create_tensor)(cudnnTensorDescriptor_t*);
  cudnnStatus_t (*create_filter)(cudnnFilterDescriptor_t*);
  cudnnStatus_t (*create_convolution)(cudnnConvolutionDescriptor_t*);
  cudnnStatus_t (*set_tensor)(cudnnTensorDescriptor_t, cudnnTensorFormat_t, cudnnDataType_t, int images, int channels,
                              int height, int width);
  cudnnStatus_t (*set_filter)(cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int out_channels,
                              int channels, int height, int width);
  cudnnStatus_t (*set_convolution)(cudnnConvolutionDescriptor_t, int pad_y, int pad_x, int stride_y, int stride_x,
                                   int dilation_y, int dilation_x, cudnnConvolutionMode_t, cudnnDataType_t compute);
  cudnnStatus_t (*set_math)(cudnnConvolutionDescriptor_t, cudnnMathType_t);
  cudnnStatus_t (*output_extents)(cudnnConvolutionDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,
                                  int* images, int* channels, int* height, int* width);

  CudnnPass<cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionFwdAlgo_t>
      forward;
  CudnnPass<cudnnFilterDescriptor_t, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnConvolutionBwdDataAlgo_t>
      input_gradient;
  CudnnPass<cudnnTensorDescriptor_t, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t, cudnnConvolutionBwdFilterAlgo_t>
      weight_gradient;
};

// Null if the machine has none. WEFT_CUDNN names another file than the usual one, or, if it is empty, none.
const Cudnn* cudnn();

void check(cudnnStatus_t code, const char* call);

}  // namespace weft::cuda
