// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/capture.h"

#include <memory>
#include <utility>

#include "tests/emulated_card/fault.h"
#include "tests/emulated_card/null_card.h"

namespace weft::emulated {
namespace {

thread_local std::shared_ptr<Capture> of_this_thread;

}  // namespace

void Capture::record(Stream& stream, Stream::Entry entry) {
  graph_.entries.push_back(std::move(entry));
  streams_[&stream].reach(stream.number(), graph_.entries.size());
}

bool Capture::is_joined() const {
  const Clock& all = streams_.at(&origin);
  for (const auto& [stream, reached] : streams_)
    if (all[stream->number()] < reached[stream->number()]) return false;
  return true;
}

cudaError_t Capture::invalidate(cudaError_t code, const std::string& why) {
  if (objection_.empty()) objection_ = why;
  return refuse(code, why);
}

Graph Capture::end() {
  for (const auto& [stream, reached] : streams_) stream->set_capture(nullptr);
  of_this_thread = nullptr;
  graph_.end = now();
  return std::move(graph_);
}

cudaError_t refused_in_capture(const char* call) {
  if (!of_this_thread) return cudaSuccess;
  return of_this_thread->invalidate(cudaErrorStreamCaptureUnsupported,
                                    std::string(call) + " by a thread that captures a stream");
}

}  // namespace weft::emulated

using namespace weft::emulated;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t refused = refused_on(stream)) return refused;
  if (stream->capture() || of_this_thread) return refused_in_capture("cudaStreamBeginCapture");
  of_this_thread = std::make_shared<Capture>(*stream);
  stream->set_capture(of_this_thread);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto capture = stream ? stream->capture() : nullptr;
  if (!capture || &capture->origin != stream)
    return refuse(cudaErrorStreamCaptureUnmatched, "this stream has begun no capture");
  if (capture->thread != std::this_thread::get_id())
    return refuse(cudaErrorStreamCaptureWrongThread, "another thread has begun it");
  const bool joined = capture->is_joined();
  Graph recorded = capture->end();
  if (!capture->objection().empty()) return refuse(cudaErrorStreamCaptureInvalidated, capture->objection());
  if (!joined) return refuse(cudaErrorStreamCaptureUnjoined, "another stream's work that this one does not wait for");
  *graph = new Graph(std::move(recorded));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const auto capture = stream ? stream->capture() : nullptr;
  *status = !capture                       ? cudaStreamCaptureStatusNone
            : capture->objection().empty() ? cudaStreamCaptureStatusActive
                                           : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (!graph) return refuse(cudaErrorInvalidValue, "no graph");
  *executable = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t refused = refused_on(stream)) return refused;
  if (stream->capture()) return refused_in_capture("cudaGraphLaunch");
  count(Asked::graph);
  for (Stream::Entry entry : executable->entries) {
    entry.when = {entry.when.asked, now(), executable->begin, executable->end};
    stream->enqueue(std::move(entry));
  }
  return fault() ? cudaErrorLaunchFailure : cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
