// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime that Weft calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/emulated_card/fault.h"
#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/modules.h"
#include "tests/emulated_card/null_card.h"

namespace weft::emulated {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t ended(cudaError_t code) {
  if (code == cudaSuccess) return fault() ? cudaErrorLaunchFailure : cudaSuccess;
  return last_error = code;
}
cudaError_t require(bool well) { return ended(well ? cudaSuccess : cudaErrorInvalidValue); }

struct Fault {
  std::mutex mutex;
  std::string what;
};
Fault& first_fault() {
  static Fault& instance = *new Fault;
  return instance;
}

}  // namespace

void report_fault(std::string what) {
  const std::lock_guard lock(first_fault().mutex);
  if (first_fault().what.empty()) first_fault().what = std::move(what);
}
const char* fault() {
  const std::lock_guard lock(first_fault().mutex);
  return first_fault().what.empty() ? nullptr : first_fault().what.c_str();
}

}  // namespace weft::emulated

using namespace weft::emulated;

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return fault();
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() {
  const cudaError_t last = std::exchange(last_error, cudaSuccess);
  return last == cudaSuccess ? ended(last) : last;
}

// ---- Cards
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 12000;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  read_module_loading();
  if (driver_version < 12000) return ended(cudaErrorInsufficientDriver);
  *count = visible_cards;
  return ended(cudaSuccess);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= cards) return ended(cudaErrorInvalidDevice);
  current_card = device;
  return ended(cudaSuccess);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_card;
  return ended(cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 9;
  return ended(cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"a card that the CPU emulates", {}, card_bytes};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return ended(cudaSuccess);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return ended(cudaSuccess);
}

// ---- Memory
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  enter_context(current_card);
  count(Asked::allocation);
  *memory = take_memory(current_card, bytes);
  return ended(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) { return require(!memory || give_memory(memory)); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  count(Asked::allocation);
  *memory = take_pinned(bytes);
  return ended(cudaSuccess);
}
cudaError_t cudaMallocHost(char** memory, size_t bytes) {
  *memory = static_cast<char*>(take_pinned(bytes));
  return ended(cudaSuccess);
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = free_memory(current_card);
  *total = card_bytes;
  return ended(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const int card = card_of(memory, 1);
  attributes->type = card != no_card     ? cudaMemoryTypeDevice
                     : is_pinned(memory) ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
  attributes->device = card != no_card ? card : current_card;
  return ended(cudaSuccess);
}
// Also between cards, for which CUDA goes through the host if they cannot access each other, but on a stream of the
// destination card, or else of the source card.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool to_card = kind != cudaMemcpyDeviceToHost, from_card = kind != cudaMemcpyHostToDevice;
  const int target = card_of(to, bytes), source = card_of(from, bytes);
  if (!stream || (target != no_card) != to_card || (source != no_card) != from_card ||
      stream->card() != (to_card ? target : source))
    return ended(cudaErrorInvalidValue);
  enter_context(stream->card());
  count(to_card ? from_card ? Asked::device_copy : Asked::upload : Asked::download);
  if (null_card() && !to_card) std::memset(to, 0, bytes);
  const bool between = to_card && from_card && target != source;
  const uint64_t position =
      stream->enqueue([=] { std::memmove(to, from, bytes); }, between ? every_card : stream->card());
  const bool pageable = (!to_card && !is_pinned(to)) || (!from_card && !is_pinned(from));
  if (pageable) stream->await(position);
  return ended(cudaSuccess);
}

// ---- Streams
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream(current_card);
  return ended(cudaSuccess);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
// It is kept, because other streams and events may have to find that its work is done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static auto& kept = *new std::deque<std::unique_ptr<Stream>>;
  static auto& mutex = *new std::mutex;
  if (!stream) return ended(cudaErrorInvalidValue);
  stream->end();
  const std::lock_guard lock(mutex);
  kept.emplace_back(stream);
  return ended(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (!stream) return ended(cudaErrorInvalidValue);
  enter_context(stream->card());
  stream->await(stream->asked());
  return ended(cudaSuccess);
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!stream) return ended(cudaErrorInvalidValue);
  enter_context(stream->card());
  return stream->is_done(stream->asked()) ? ended(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  enter_context(stream->card());
  if (event->stream) stream->enqueue([before = *event] { before.stream->await(before.position); }, no_card);
  return ended(cudaSuccess);
}

// ---- Events
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event{current_card};
  return ended(cudaSuccess);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return ended(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event->card != stream->card()) return ended(cudaErrorInvalidResourceHandle);
  enter_context(event->card);
  event->stream = stream;
  event->position = stream->asked();
  return ended(cudaSuccess);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  enter_context(event->card);
  const bool done = !event->stream || event->stream->is_done(event->position);
  return done ? ended(cudaSuccess) : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  enter_context(event->card);
  if (event->stream) event->stream->await(event->position);
  return ended(cudaSuccess);
}
