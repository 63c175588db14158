// SPDX-License-Identifier: Apache-2.0
// Copies between the host and a card, and waits for a card.
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/graph.h"

namespace weft {
namespace cuda {

static cudaPointerAttributes attributes_of(const void* memory) {
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
  return attributes;
}

// In the driver this thread can do nothing else, so it enters it only when nothing else is left to do.
template <class Done> void Context::go_on_until(Done done) {
  while (go_on_ && !done() && go_on_()) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

void Context::await_work() {
  if (capturing_) fail_in_graph("wait for the card");
  go_on_until([this] { return cudaStreamQuery(stream_) != cudaErrorNotReady; });
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void Context::check_results() {
  if (go_on_) go_on_();
  if (bad_index_->verb == 0) [[likely]]
    return;
  const BadIndex bad = std::exchange(*bad_index_, {});
  fail_bad_index(bad.names, bad.index, bad.position, bad.bound);
}

void Context::synchronize() {
  await_work();
  check_results();
}

// The copy itself waits for the stream if the memory is pageable.
void Context::download(void* to, const void* from, size_t bytes) {
  if (capturing_) fail_in_graph("copy ", bytes, " bytes to the host");
  go_on_until([this] { return cudaStreamQuery(stream_) != cudaErrorNotReady; });
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  check_results();
}

std::function<void()> Context::start_download(void* to, const void* from, size_t bytes) {
  if (capturing_) fail_in_graph("copy ", bytes, " bytes to the host");
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "download");
  const cudaEvent_t copied = borrow_event();
  check(cudaEventRecord(copied, stream_), "cudaEventRecord");
  return [this, copied] {
    go_on_until([=] { return cudaEventQuery(copied) != cudaErrorNotReady; });
    check(cudaEventSynchronize(copied), "cudaEventSynchronize");
    give_back(copied);
  };
}

std::function<void()> Context::record_event() {
  using Event = std::remove_pointer_t<cudaEvent_t>;
  const std::shared_ptr<Event> event(borrow_event(), [this](cudaEvent_t unused) { give_back(unused); });
  check(cudaEventRecord(event.get(), stream_), "cudaEventRecord");
  return [event] { check(cudaStreamWaitEvent(context().stream(), event.get(), 0), "cudaStreamWaitEvent"); };
}

// Copies through pinned memory, because an asynchronous copy from pageable memory would first wait for the stream. If
// the source is pinned already, waiting for its copy costs less than another copy by the host.
void Context::upload(void* to, const char* from, size_t bytes) {
  if (capturing_) return capturing_->upload(to, from, bytes);
  if (bytes > slot_bytes && attributes_of(from).type == cudaMemoryTypeHost) {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "upload");
    return synchronize();
  }
  if (!staging_) [[unlikely]] {
    for (cudaEvent_t& event : slot_free_)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaMallocHost(reinterpret_cast<void**>(&staging_), slots * slot_bytes), "cudaMallocHost");
  }
  for (size_t done = 0; done < bytes; slot_ = (slot_ + 1) % slots) {
    const size_t part = std::min(bytes - done, slot_bytes);
    char* slot = staging_ + static_cast<size_t>(slot_) * slot_bytes;
    go_on_until([&] { return cudaEventQuery(slot_free_[slot_]) != cudaErrorNotReady; });
    check(cudaEventSynchronize(slot_free_[slot_]), "cudaEventSynchronize");
    std::memcpy(slot, from + done, part);
    check(cudaMemcpyAsync(static_cast<char*>(to) + done, slot, part, cudaMemcpyHostToDevice, stream_), "upload");
    check(cudaEventRecord(slot_free_[slot_], stream_), "cudaEventRecord");
    done += part;
  }
}

}  // namespace cuda

// If `from` is on another card, CUDA selects the way of the copy.
void CudaBackend::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda::context().stream()), "copy");
}

void CudaBackend::upload(void* to, const void* from, size_t bytes) {
  cuda::context().upload(to, static_cast<const char*>(from), bytes);
}

void CudaBackend::download(void* to, const void* from, size_t bytes) { cuda::context().download(to, from, bytes); }

std::function<void()> CudaBackend::start_download(void* to, const void* from, size_t bytes) {
  return cuda::context().start_download(to, from, bytes);
}

void CudaBackend::synchronize() { cuda::context().synchronize(); }

bool CudaBackend::reaches(const void* memory) { return cuda::attributes_of(memory).device == cuda::context().device(); }

void* CudaBackend::queue() { return cuda::context().stream(); }

std::function<void()> CudaBackend::record_event() { return cuda::context().record_event(); }

void CudaBackend::while_waiting(std::function<bool()> go_on) { cuda::context().while_waiting(std::move(go_on)); }

}  // namespace weft
