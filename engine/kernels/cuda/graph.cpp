// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/kernels/cuda/graph.h"

#include <cstring>
#include <utility>

#include "weft/engine/kernels/cuda/cuda_backend.h"

namespace weft {
namespace cuda {
namespace {

constexpr size_t most_constants = size_t{4} << 20, most_tables = size_t{1} << 20;

struct Destroy {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using GraphHandle = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy>;

GraphHandle captured(Context& context, Graph& graph, const std::function<void()>& work) {
  context.begin_capture(graph);
  cudaGraph_t result = nullptr;
  try {
    work();
  } catch (...) {
    context.end_capture(&result);
    const GraphHandle dropped(result);
    throw;
  }
  check(context.end_capture(&result), "cudaStreamEndCapture");
  return GraphHandle(result);
}

}  // namespace

void Context::begin_capture(Graph& graph) {
  await_other_threads();
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  capturing_ = &graph;
}

cudaError_t Context::end_capture(cudaGraph_t* result) {
  capturing_ = nullptr;
  return cudaStreamEndCapture(stream_, result);
}

const char* KeptValues::add(const char* values, size_t bytes) {
  constexpr size_t alignment = 16;
  const size_t begin = (host.size() + alignment - 1) / alignment * alignment;
  if (begin + bytes > device->bytes) fail_in_graph("upload more than ", device->bytes, " bytes");
  host.resize(begin);
  host.insert(host.end(), values, values + bytes);
  return static_cast<const char*>(device->data) + begin;
}

void KeptValues::upload(Context& context) const { context.upload(device->data, host.data(), host.size()); }

Graph::Graph()
    : context_(context()),
      constants_{StorageHandle(context_.take(most_constants))},
      tables_{StorageHandle(context_.take(most_tables))} {}

Graph::~Graph() { forget(); }

// The stream may still run it: blocks come back in its order.
void Graph::forget() {
  if (executable_) cudaGraphExecDestroy(std::exchange(executable_, nullptr));
  for (Block* block : blocks_) block->graph = nullptr;
  blocks_.clear();
  for (Block*& list : free_)
    while (list) context_.keep(std::exchange(list, list->next));
}

void Graph::run(const std::function<void()>& step, const std::function<void()>& renew) {
  recordings_ < 2 ? record(step) : this->renew(renew);
  tables_.upload(context_);
  check(cudaGraphLaunch(executable_, context_.stream()), "cudaGraphLaunch");
}

void Graph::record(const std::function<void()>& step) {
  forget();
  const std::vector<char> before = std::exchange(constants_.host, {});
  tables_.host.clear();
  kept_.clear();
  freed_ = 0;
  const GraphHandle graph = captured(context_, *this, step);
  if (freed_ > 0)
    fail_in_graph("free ", freed_, " bytes from before it, which it would read again; it must change them in place");
  if (recordings_ > 0 && before != constants_.host) fail_in_graph("upload other values than the step before");
  check(cudaGraphInstantiate(&executable_, graph.get(), 0), "cudaGraphInstantiate");
  constants_.upload(context_);
  ++recordings_;
}

void Graph::renew(const std::function<void()>& numbers) {
  renewing_ = true;
  renewed_ = 0;
  captured(context_, *this, numbers);  // and dropped
  renewing_ = false;
  if (renewed_ != kept_.size()) fail_in_graph("make ", renewed_, " updates, and then ", kept_.size());
}

// Also for `renew`, whose work is dropped: the pool may have given all its blocks to the capture.
Block* Graph::take(int size_class) {
  Block* const block = free_[size_class];
  if (block) free_[size_class] = block->next;
  return block;
}

void Graph::adopt(Block& block) {
  if (renewing_ || block.graph) return;
  block.graph = this;
  blocks_.push_back(&block);
}

void Graph::count_freed(const Block& block) {
  if (block.device == Device::cuda && !block.graph) freed_ += block.bytes;
}

void Graph::upload(void* to, const char* from, size_t bytes) {
  if (renewing_ || bytes == 0) return;
  check(cudaMemcpyAsync(to, constants_.add(from, bytes), bytes, cudaMemcpyDeviceToDevice, context_.stream()), "upload");
}

const char* Graph::keep(const char* table, size_t bytes, const std::function<bool(char* captured)>& renew) {
  if (!renewing_) {
    const char* const place = tables_.add(table, bytes);
    kept_.push_back({tables_.host.size() - bytes, bytes});
    return place;
  }
  const Kept kept = renewed_ < kept_.size() ? kept_[renewed_++] : Kept{};
  if (kept.bytes != bytes || !renew(tables_.host.data() + kept.begin))
    fail_in_graph("update other parameters from step to step");
  return static_cast<const char*>(tables_.device->data) + kept.begin;
}

}  // namespace cuda

std::unique_ptr<StepGraph> CudaBackend::make_graph() { return std::make_unique<cuda::Graph>(); }

}  // namespace weft
