// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads that make the data of a batch together, each some of its rows. What a row holds may depend on the number of
// its sample, but on no thread.
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "weft/engine/tensor/tensor.h"

namespace weft {

class Workers {
 public:
  // The caller and `threads` - 1 others, or as many as the system has left.
  explicit Workers(int64_t threads);

  // What `make(samples)` returns: values whose tensors are on the host, with a row for each sample. Each thread calls
  // `make` for some of the samples. An error of one is thrown here.
  template <class Make> auto make_rows(std::span<const int64_t> samples, const Make& make) {
    if (others_.empty()) return make(samples);
    auto all = make(samples.first(0));
    for (Tensor* tensor : tensors_of(all))
      *tensor = Tensor(tensor->shape().with(0, std::ssize(samples)), tensor->dtype());
    parallel_for(std::ssize(samples), [&](int64_t begin, int64_t end) {
      auto some = make(samples.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
      for (size_t i = 0; i < tensors_of(all).size(); ++i)
        tensors_of(all)[i]->slice(begin, end).copy_from(*tensors_of(some)[i]);
    });
    return all;
  }

 private:
  using Work = std::function<void(int64_t begin, int64_t end)>;
  static std::vector<Tensor*> tensors_of(Tensor& tensor) { return {&tensor}; }
  template <class T> static std::vector<Tensor*> tensors_of(T& values) { return values.tensors(); }

  // Calls `work` on all threads, for ranges that together are 0 to count - 1.
  void parallel_for(int64_t count, const Work& work);
  void serve(const std::stop_token& end);
  void work_on_ranges(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any begun_;
  std::condition_variable ended_;
  const Work* work_ = nullptr;
  int64_t next_ = 0, count_ = 0, length_ = 1;  // `length_` is that of a range
  int64_t busy_ = 0;                           // threads
  std::exception_ptr error_;
  std::vector<std::jthread> others_;  // their destructors end them
};

}  // namespace weft
