// SPDX-License-Identifier: Apache-2.0
// The emulated cuDNN refuses what NVIDIA's does, and convolutions are by cuDNN wherever it can.
#include "tests/emulated_card/on_card.h"
#include "tests/kernels/cuda_checks.h"
#include "weft/engine/kernels/cuda/convolution_plan.h"
#include "weft/engine/kernels/step_graph.h"

using namespace weft;
using namespace weft::cuda;
using on_card::OnCard, on_card::Stream, on_card::fault_on, on_card::in_a_process;

namespace {

constexpr Convolution shape = {2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1};

bool by_cudnn(const Convolution& c, DType type, ConvolutionPass pass) {
  const auto zeros = [&](const Shape& extents) { return Tensor::zeros(extents, type, Device::cuda); };
  return convolve_by_cudnn(pass, c, false, zeros({c.batch, c.height, c.width, c.channels}),
                           zeros({c.kernel_height, c.kernel_width, c.channels, c.out_channels}),
                           zeros({c.batch, c.out_height, c.out_width, c.out_channels}));
}

// One call of cuDNN as Weft makes it, but for what is given.
struct Call {
  DType type = DType::f32;
  int64_t misaligned = 0, missing = 0, lacking = 0;  // bytes: of x, of y's end, of the workspace
  cudnnConvolutionFwdAlgo_t algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  int current = 0;

  std::string outcome() const {
    const Cudnn& dnn = *cudnn();
    const Stream stream;
    const ConvolutionDescriptors of(dnn, shape, type, false);
    const OnCard<char> x(180 * 4 + 16), w(108 * 4), y(static_cast<size_t>(240 * 4 - missing)), workspace(1000);
    cudnnHandle_t handle = nullptr;
    dnn.create(&handle);
    dnn.set_stream(handle, stream.handle);
    dnn.set_tensor(of.images, format, CUDNN_DATA_FLOAT, 2, 3, 5, 6);
    const float one = 1, zero = 0;
    size_t bytes = 0;
    dnn.forward.workspace(handle, of.images, of.weights, of.convolution, of.windows,
                          CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, &bytes);
    const on_card::Current card(current);
    const cudnnStatus_t status =
        dnn.forward.run(handle, &one, of.images, x.data + misaligned, of.weights, w.data, of.convolution, algorithm,
                        workspace.data, bytes - static_cast<size_t>(lacking), &zero, of.windows, y.data);
    return status ? dnn.status_text(status) : fault_on(stream);
  }
};

}  // namespace

TEST_CASE("convolutions are by cuDNN unless it does not support them") {
  for (const auto pass :
       {ConvolutionPass::forward, ConvolutionPass::input_gradient, ConvolutionPass::weight_gradient}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      CHECK(by_cudnn(shape, type, pass));
      CHECK(by_cudnn({1, 7, 9, 1, 2, 3, 2, 5, 8, 3, 1, 1, 0, 4, 2}, type, pass));
    }
    CHECK(!by_cudnn(shape, DType::f64, pass));
    CHECK(!by_cudnn({2, 5, 6, 3, 3, 3, 5, 5, 4, 1, 1, 1, 1, 1, 1}, DType::f32, pass));
    CHECK(!by_cudnn({1, 4, 4, 2, 2, 2, 1, 3, 3, int64_t{1} << 32, 1, 0, 0, 1, 1}, DType::f32, pass));
    CHECK(!by_cudnn({1, 0, 4, 2, 1, 1, 2, 4, 3, 1, 1, 1, 0, 1, 1}, DType::f32, pass));
  }
  backend(Device::cuda).synchronize();  // or the next test's processes begin with locks of threads that they lack
}

TEST_CASE("cuDNN refuses wrong calls, and reads and writes only what is in use") {
  const auto outcome = [](const Call& call) { return in_a_process([&] { return call.outcome(); }); };
  CHECK(outcome({}) == "no error");
  CHECK(outcome({.misaligned = 4}) == "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER");
  CHECK(outcome({.misaligned = 32}).find("cuDNN reads 720 bytes") != std::string::npos);
  CHECK(outcome({.missing = 4}).find("cuDNN writes 960 bytes") != std::string::npos);
  CHECK(outcome({.lacking = 1}) == "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT");
  CHECK(outcome({.algorithm = cudnnConvolutionFwdAlgo_t(0)}) == "CUDNN_STATUS_BAD_PARAM");
  CHECK(outcome({.format = CUDNN_TENSOR_NCHW}) == "CUDNN_STATUS_NOT_SUPPORTED");
  CHECK(outcome({.type = DType::bf16}) == "CUDNN_STATUS_NOT_SUPPORTED");  // x is f32
  CHECK(outcome({.current = 1}) == "CUDNN_STATUS_EXECUTION_FAILED: another card is current");
}

TEST_CASE("a captured step cannot start cuDNN") {
  CHECK(in_a_process([] {
          Backend& card = backend(Device::cuda);
          card.use_card(2);  // on which nothing has been convolved
          const Tensor x = Tensor::zeros({1, 1, 1, 1}, DType::f32, Device::cuda);
          Tensor y({1, 3, 3, 1}, DType::f32, Device::cuda);
          try {
            card.make_graph()->run([&] { card.convolve({1, 1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 1}, x, x, {}, y); }, [] {});
          } catch (const NotRepeatable& error) {
            return std::string(error.what());
          }
          return std::string("it has");
        }) == "cuda: a step in a graph cannot start cuDNN");
}

TEST_CASE("which cuDNN there is can be seen") {
  CHECK_THAT(backend(Device::cuda).description(), Catch::Contains("16 GiB, cuDNN 9.0"));
}
