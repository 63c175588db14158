// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's runtime that Weft calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "tests/emulated_card/access.h"
#include "tests/emulated_card/capture.h"
#include "tests/emulated_card/fault.h"
#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/modules.h"
#include "tests/emulated_card/null_card.h"
#include "tests/emulated_card/stream.h"

using namespace weft::emulated;

namespace {

cudaError_t ended() { return fault() ? cudaErrorLaunchFailure : cudaSuccess; }

// The host's waits and questions.
void await(Stream* stream, const Place& place) {
  stream->await(place.position);
  see_done(place);
}
bool is_done(Stream* stream, const Place& place) {
  const bool done = stream->is_done(place.position);
  if (done) see_done(place);
  return done;
}

// A question about an event of a capture, or by a thread that captures.
cudaError_t refused_outside(const Event::Record& event, const char* call) {
  if (const cudaError_t refused = refused_in_capture(call)) return refused;
  return event.capture ? event.capture->invalidate(cudaErrorCapturedEvent, call) : cudaSuccess;
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) { return text_of(error); }
cudaError_t cudaGetLastError() {
  const cudaError_t last = take_last_error();
  return last == cudaSuccess ? ended() : last;
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
  if (driver_version < 12000) return refuse(cudaErrorInsufficientDriver, "version " + std::to_string(driver_version));
  *count = visible_cards;
  return ended();
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= cards) return refuse(cudaErrorInvalidDevice, std::to_string(device));
  current_card = device;
  return ended();
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_card;
  return ended();
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const int cache_bytes = null_card() ? 50 << 20 : 64 << 10;  // so little that small work takes several tiles
  *value = attribute == cudaDevAttrL2CacheSize ? cache_bytes : 9;
  return ended();
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  *properties = {"a card that the CPU emulates", {}, card_bytes};
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return ended();
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return ended();
}

// ---- Memory
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t refused = refused_in_capture("cudaMalloc")) return refused;
  enter_context(current_card);
  count(Asked::allocation);
  *memory = take_memory(current_card, bytes);
  return *memory ? ended() : refuse(cudaErrorMemoryAllocation, std::to_string(bytes) + " bytes");
}
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t refused = refused_in_capture("cudaFree")) return refused;
  return !memory || give_memory(memory) ? ended() : refuse(cudaErrorInvalidValue, "memory that is not allocated");
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  if (const cudaError_t refused = refused_in_capture("cudaHostAlloc")) return refused;
  count(Asked::allocation);
  *memory = take_pinned(bytes);
  return ended();
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t refused = refused_in_capture("cudaMallocHost")) return refused;
  *memory = take_pinned(bytes);
  return ended();
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = free_memory(current_card);
  *total = card_bytes;
  return ended();
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const int card = card_of(memory, 0);
  attributes->type = card != no_card     ? cudaMemoryTypeDevice
                     : is_pinned(memory) ? cudaMemoryTypeHost
                                         : cudaMemoryTypeUnregistered;
  attributes->device = card != no_card ? card : current_card;
  return ended();
}
// Also between cards, for which CUDA goes through the host if they cannot access each other, but on a stream of the
// destination card, or else of the source card.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t refused = refused_on(stream)) return refused;
  const bool to_card = kind != cudaMemcpyDeviceToHost, from_card = kind != cudaMemcpyHostToDevice;
  const int target = card_of(to, bytes), source = card_of(from, bytes);
  if ((target != no_card) != to_card || (source != no_card) != from_card)
    return refuse(cudaErrorInvalidValue, "a copy of " + std::to_string(bytes) +
                                             " bytes, of which a side is not where it says, or not all in use");
  if (stream->card() != (to_card ? target : source))
    return refuse(cudaErrorInvalidValue, "a copy on a stream of another card");
  enter_context(stream->card());
  if (!stream->capture()) count(to_card ? from_card ? Asked::device_copy : Asked::upload : Asked::download);
  if (null_card() && !to_card) std::memset(to, 0, bytes);
  const bool pageable = (!to_card && !is_pinned(to)) || (!from_card && !is_pinned(from));
  if (pageable && stream->capture()) return refused_in_capture("a copy of pageable memory, which waits");
  const bool between = to_card && from_card && target != source;
  const auto copy = [=] {
    name_work("a copy");
    access(from, bytes, false);
    access(to, bytes, true);
    std::memmove(to, from, bytes);
  };
  stream->enqueue(copy, between ? every_card : stream->card());
  if (pageable) await(stream, stream->last());
  return ended();
}

// ---- Streams
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new Stream(current_card);
  return ended();
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
// It is kept, because other streams and events may have to find that its work is done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  static auto& kept = *new std::deque<std::unique_ptr<Stream>>;
  static auto& mutex = *new std::mutex;
  if (!stream) return refused_on(stream);
  stream->end();
  see_done(stream->last());
  const std::lock_guard lock(mutex);
  kept.emplace_back(stream);
  return ended();
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t refused = refused_in_capture("cudaStreamSynchronize")) return refused;
  if (!stream) return refused_on(stream);
  enter_context(stream->card());
  await(stream, stream->last());
  return ended();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t refused = refused_in_capture("cudaStreamQuery")) return refused;
  if (!stream) return refused_on(stream);
  enter_context(stream->card());
  return is_done(stream, stream->last()) ? ended() : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t refused = refused_on(stream)) return refused;
  enter_context(stream->card());
  const auto [before, place, captured, reached] = event->get();
  const auto capture = stream->capture();
  if (!before) return ended();
  if (captured && (!capture || capture == captured)) {
    if (!capture) stream->set_capture(captured);
    captured->join(*stream, reached);
    return ended();
  }
  if (capture || captured)
    return (capture ? capture : captured)
        ->invalidate(cudaErrorStreamCaptureIsolation, "cudaStreamWaitEvent between a capture and work outside of it");
  stream->enqueue([before = before, position = place.position] { before->await(position); }, no_card);
  stream->follow(place);
  return ended();
}

// ---- Events
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event{current_card};
  return ended();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return ended();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t refused = refused_on(stream)) return refused;
  if (event->card != stream->card()) return refuse(cudaErrorInvalidResourceHandle, "an event of another card");
  enter_context(event->card);
  const auto capture = stream->capture();
  event->set({stream, stream->last(), capture, capture ? capture->reached(*stream) : Clock()});
  return ended();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  enter_context(event->card);
  const Event::Record record = event->get();
  if (const cudaError_t refused = refused_outside(record, "cudaEventQuery")) return refused;
  return !record.stream || is_done(record.stream, record.place) ? ended() : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  enter_context(event->card);
  const Event::Record record = event->get();
  if (const cudaError_t refused = refused_outside(record, "cudaEventSynchronize")) return refused;
  if (record.stream) await(record.stream, record.place);
  return ended();
}
