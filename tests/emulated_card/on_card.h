// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams and memory of emulated cards, and what becomes of a process that makes a mistake on them.
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/emulated_card/stream.h"
#include "tests/support/catch.h"

namespace on_card {

constexpr unsigned threads = 256;

// Selects the calling thread's card for its lifetime; then card 0 again.
struct Current {
  explicit Current(int card) { cudaSetDevice(card); }
  ~Current() { cudaSetDevice(0); }
};
struct Stream {
  cudaStream_t handle = nullptr;
  explicit Stream(int card = 0) {
    const Current current(card);
    cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking);
  }
  ~Stream() { cudaStreamDestroy(handle); }
};
struct Event {
  cudaEvent_t handle = nullptr;
  explicit Event(int card = 0) {
    const Current current(card);
    cudaEventCreateWithFlags(&handle, cudaEventDisableTiming);
  }
  ~Event() { cudaEventDestroy(handle); }
  Event(const Event&) = delete;
};
template <class T> struct OnCard {
  T* data = nullptr;
  explicit OnCard(size_t count, int card = 0) {
    const Current current(card);
    cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(T));
  }
  ~OnCard() { cudaFree(data); }
};

template <class T> std::vector<T> downloaded(const T* from, size_t count, const Stream& stream) {
  const Current current(stream.handle->card());
  std::vector<T> values(count);
  CHECK(cudaMemcpyAsync(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost, stream.handle) == cudaSuccess);
  return values;
}

template <class... P, class... A>
cudaError_t launch(const Stream& stream, unsigned blocks, void (*kernel)(P...), A... arguments) {
  const cudaLaunchConfig_t shape = {{blocks}, {threads}, 0, stream.handle};
  return cudaLaunchKernelEx(&shape, kernel, arguments...);
}

// How a process ended that ran this: its exit code, or minus the signal.
template <class F> int end_of(const F& work) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // instead of Catch's report
    _exit(work());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

// What work() returns in a process of its own, since a kernel's fault outlives its test, or says before it ends.
template <class F> std::string in_a_process(const F& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    for (const int ending : {SIGABRT, SIGSEGV}) std::signal(ending, SIG_DFL);  // instead of Catch's report
    dup2(ends[1], STDERR_FILENO);
    const std::string text = work();
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[1000];
  for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;) text.append(part, static_cast<size_t>(got));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return text;
}
// What is wrong with all work on a stream, or "no error".
inline std::string fault_on(const Stream& stream) { return cudaGetErrorString(cudaStreamSynchronize(stream.handle)); }

}  // namespace on_card
