// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/fault.h"

#include <mutex>
#include <utility>

#include "tests/emulated_card/stream.h"

namespace weft::emulated {
namespace {

struct Refusal {
  cudaError_t code = cudaSuccess;
  bool pending = false;
  std::string text;
};
thread_local Refusal last;

struct Fault {
  std::mutex mutex;
  std::string what;
};
Fault& first_fault() {
  static Fault& instance = *new Fault;
  return instance;
}

const char* name_of(cudaError_t code) {
  switch (code) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return fault();
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnmatched: return "capture was not initiated in this stream";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
  }
  return "unrecognized error code";
}

}  // namespace

cudaError_t refuse(cudaError_t code, std::string why) {
  last = {code, true, std::string(name_of(code)) + ": " + std::move(why)};
  return code;
}
cudaError_t refused_on(const Stream* stream) {
  if (!stream) return refuse(cudaErrorInvalidResourceHandle, "the legacy stream, which waits for all others");
  if (stream->is_current()) return cudaSuccess;
  return refuse(cudaErrorInvalidResourceHandle, "a stream of card " + std::to_string(stream->card()) + " while card " +
                                                    std::to_string(current_card) + " is current");
}
cudaError_t take_last_error() { return std::exchange(last.pending, false) ? last.code : cudaSuccess; }
const char* text_of(cudaError_t code) {
  return code != cudaSuccess && code == last.code ? last.text.c_str() : name_of(code);
}

void report_fault(std::string what) {
  const std::lock_guard lock(first_fault().mutex);
  if (first_fault().what.empty()) first_fault().what = std::move(what);
}
const char* fault() {
  const std::lock_guard lock(first_fault().mutex);
  return first_fault().what.empty() ? nullptr : first_fault().what.c_str();
}

}  // namespace weft::emulated
