// SPDX-License-Identifier: Apache-2.0
#pragma once
// The capture of work on streams in a graph, in thread-local mode. What would wait, or use the work before it is
// launched, invalidates the capture.
#include <cuda_runtime_api.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulated_card/stream.h"

namespace weft::emulated {

// Work in the order in which it was recorded, which all its dependencies follow.
struct Graph {
  Moment begin = now(), end = begin;
  std::vector<Stream::Entry> entries;
};

class Capture {
 public:
  explicit Capture(Stream& origin) : origin(origin) { streams_[&origin]; }

  Stream& origin;
  const std::thread::id thread = std::this_thread::get_id();

  void record(Stream& stream, Stream::Entry entry);
  Clock reached(Stream& stream) { return streams_[&stream]; }
  void join(Stream& stream, const Clock& event) { streams_[&stream].reach(event); }
  bool is_joined() const;  // whether the origin has waited for all other streams

  cudaError_t invalidate(cudaError_t code, const std::string& why);
  const std::string& objection() const { return objection_; }
  Graph end();

 private:
  std::map<Stream*, Clock> streams_;  // how many of the graph's entries each has seen, by stream
  std::string objection_;
  Graph graph_;
};

// Refuses a call that a thread must not make while it captures, and invalidates the capture.
cudaError_t refused_in_capture(const char* call);

}  // namespace weft::emulated
