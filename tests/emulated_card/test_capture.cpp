// SPDX-License-Identifier: Apache-2.0
// Graphs run what was captured, and what a capture must not contain is refused with its name.
#include "tests/emulated_card/on_card.h"
#include "weft/engine/kernels/cuda/used_bytes.h"

using namespace on_card;
using Catch::Contains;

namespace {

__global__ void add_one(float* x) { x[threadIdx.x] += 1; }
__global__ void copy(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x]; }

// What work(stream) becomes between the begin and the end of a capture; null if it is refused.
template <class Work> cudaGraph_t captured(const Stream& stream, Work work) {
  REQUIRE(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  work();
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream.handle, &graph);
  return graph;
}
cudaGraphExec_t executable(cudaGraph_t graph) {
  cudaGraphExec_t result = nullptr;
  REQUIRE(cudaGraphInstantiate(&result, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  return result;
}
void upload(const OnCard<float>& x, float value, const Stream& stream) {
  const std::vector<float> values(threads, value);
  cudaMemcpyAsync(x.data, values.data(), threads * sizeof(float), cudaMemcpyHostToDevice, stream.handle);
}
const auto active = [](const Stream& stream) {
  cudaStreamCaptureStatus status;
  cudaStreamIsCapturing(stream.handle, &status);
  return status;
};

TEST_CASE("a capture records work of its stream and of those that follow it, and each launch of the graph runs it") {
  const Stream stream, other;
  const OnCard<float> x(threads), y(threads);
  const Event begun, done;
  upload(x, 1, stream);
  const auto step = [&] {
    CHECK(active(stream) == cudaStreamCaptureStatusActive);
    launch(stream, 1, add_one, x.data);
    cudaEventRecord(begun.handle, stream.handle);
    cudaStreamWaitEvent(other.handle, begun.handle, 0);
    CHECK(active(other) == cudaStreamCaptureStatusActive);
    launch(other, 1, copy, y.data, static_cast<const float*>(x.data));
    cudaEventRecord(done.handle, other.handle);
    cudaStreamWaitEvent(stream.handle, done.handle, 0);
    launch(stream, 1, add_one, x.data);
  };
  const cudaGraphExec_t graph = executable(captured(stream, step));
  CHECK(active(other) == cudaStreamCaptureStatusNone);
  CHECK(downloaded(x.data, threads, stream)[9] == 1);  // nothing has run
  for (int i = 0; i < 3; ++i) CHECK(cudaGraphLaunch(graph, stream.handle) == cudaSuccess);
  CHECK(downloaded(x.data, threads, stream)[9] == 7);
  CHECK(downloaded(y.data, threads, stream)[9] == 6);
  cudaGraphExecDestroy(graph);
}

TEST_CASE("what waits, allocates or asks for captured work invalidates a capture, and is named") {
  const Stream stream, other;
  const OnCard<float> x(threads);
  const Event event, outside;
  launch(other, 1, add_one, x.data);
  cudaEventRecord(outside.handle, other.handle);
  void* memory = nullptr;
  const auto reason = [&](auto forbidden) {
    CHECK(captured(stream, [&] {
            launch(stream, 1, add_one, x.data);
            cudaEventRecord(event.handle, stream.handle);
            CHECK(forbidden() != cudaSuccess);
            CHECK(active(stream) == cudaStreamCaptureStatusInvalidated);
          }) == nullptr);
    CHECK(active(stream) == cudaStreamCaptureStatusNone);
    return std::string(cudaGetErrorString(cudaErrorStreamCaptureInvalidated));
  };
  CHECK(reason([&] { return cudaStreamSynchronize(stream.handle); }) ==
        "operation failed due to a previous error during capture: cudaStreamSynchronize by a thread that captures a "
        "stream");
  CHECK_THAT(reason([&] { return cudaStreamQuery(other.handle); }), Contains("cudaStreamQuery by a thread"));
  CHECK_THAT(reason([&] { return cudaEventQuery(event.handle); }), Contains("cudaEventQuery by a thread"));
  CHECK_THAT(reason([&] { return cudaEventSynchronize(event.handle); }), Contains("cudaEventSynchronize by a thread"));
  CHECK_THAT(reason([&] { return cudaMalloc(&memory, 1); }), Contains("cudaMalloc by a thread"));
  CHECK_THAT(reason([&] { return cudaFree(x.data); }), Contains("cudaFree by a thread"));
  CHECK_THAT(reason([&] { return cudaHostAlloc(&memory, 1, 0); }), Contains("cudaHostAlloc by a thread"));
  CHECK_THAT(reason([&] { return cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal); }),
             Contains("cudaStreamBeginCapture by a thread"));
  CHECK_THAT(reason([&] {
               float value = 0;
               return cudaMemcpyAsync(&value, x.data, 4, cudaMemcpyDeviceToHost, stream.handle);
             }),
             Contains("a copy of pageable memory"));
  CHECK_THAT(reason([&] { return cudaStreamWaitEvent(stream.handle, outside.handle, 0); }),
             Contains("between a capture and work outside of it"));
  CHECK(cudaStreamSynchronize(other.handle) == cudaSuccess);
}

TEST_CASE("another thread may wait while a stream is captured, but not for what is captured") {
  const Stream stream, other;
  const OnCard<float> x(threads);
  const Event event;
  CHECK(captured(stream, [&] {
          launch(stream, 1, add_one, x.data);
          cudaEventRecord(event.handle, stream.handle);
          std::thread([&] {
            CHECK(cudaStreamSynchronize(other.handle) == cudaSuccess);
            cudaGraph_t graph;
            CHECK(cudaStreamEndCapture(stream.handle, &graph) == cudaErrorStreamCaptureWrongThread);
            CHECK(active(stream) == cudaStreamCaptureStatusActive);
            CHECK(cudaEventQuery(event.handle) == cudaErrorCapturedEvent);
          }).join();
        }) == nullptr);
  CHECK_THAT(cudaGetErrorString(cudaErrorStreamCaptureInvalidated), Contains("cudaEventQuery"));
}

TEST_CASE("a capture ends on its own stream, which has waited for the others") {
  const Stream stream, other;
  const OnCard<float> x(threads);
  const Event event;
  CHECK(captured(stream, [&] {
          cudaEventRecord(event.handle, stream.handle);
          cudaStreamWaitEvent(other.handle, event.handle, 0);
          launch(other, 1, add_one, x.data);
          cudaGraph_t graph;
          CHECK(cudaStreamEndCapture(other.handle, &graph) == cudaErrorStreamCaptureUnmatched);
        }) == nullptr);
  CHECK_THAT(cudaGetErrorString(cudaErrorStreamCaptureUnjoined), Contains("unjoined work"));
  CHECK(cudaStreamSynchronize(other.handle) == cudaSuccess);
}

TEST_CASE("a graph uses memory as when it was captured, which nobody else may have had since") {
  const auto result = [](bool taken) {
    return in_a_process([taken] {
      const Stream stream;
      const OnCard<float> block(threads), y(threads);
      const weft::cuda::UsedBytes used(block.data, threads * sizeof(float));
      const cudaGraphExec_t graph = executable(captured(stream, [&] {
        used.begin(threads * sizeof(float));
        launch(stream, 1, add_one, block.data);
        used.end();
        used.begin(threads * sizeof(float));
        launch(stream, 1, copy, y.data, static_cast<const float*>(block.data));
        used.end();
      }));
      for (int i = 0; i < 2; ++i) {
        cudaGraphLaunch(graph, stream.handle);
        if (downloaded(y.data, threads, stream)[0] == 1) return std::string("an old value");
      }
      used.begin(threads * sizeof(float));
      if (taken) launch(stream, 1, add_one, block.data);
      used.end();
      cudaGraphLaunch(graph, stream.handle);
      return fault_on(stream);
    });
  };
  CHECK(result(false) == "no error");
  CHECK_THAT(result(true), Contains("which was taken back after this was recorded"));
}

}  // namespace
