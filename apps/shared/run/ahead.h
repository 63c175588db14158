// SPDX-License-Identifier: Apache-2.0
#pragma once
// Prepares the data of the next step while the current one computes, on the cores that are free for that. The values,
// and their order, are the same on any number of threads. On a card they are copied on a stream of their own, and at
// most two steps' data are there: those that a step reads, and the next ones.
//
//   auto ahead = data_ahead(batches, training, run.steps_done(), make, beside_steps(rank));
//   while (run.running()) {
//     const auto data = run.data([&] { return ahead.next(); });
//     ...
//     use(data.of(micro.samples));
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "apps/shared/run/workers.h"
#include "weft/collectives/checks/timeline.h"
#include "weft/data/batches.h"
#include "weft/engine/kernels/backend.h"
#include "weft/optim/training.h"

namespace weft {

struct Launch;

struct BesideSteps {
  int64_t threads;               // that prepare data beside the steps, or 0
  Device device = Device::cpu;   // where its data go
  Timeline* timeline = nullptr;  // to note when it does, or null
};
// With a rank's part of the cores of this machine, besides one for each rank. All ranks call it.
BesideSteps beside_steps(const Launch& rank);
int64_t threads_beside_steps(int64_t cores, int64_t ranks);

template <class T> class Ahead {
 public:
  // `make` returns the values one after the other, as tensors on the host or on `device`. With a spare core it runs on
  // a thread of its own, which has a stream of its own, unless the system has no thread left.
  Ahead(std::function<T()> make, bool spare_core, Device device = Device::cpu) : make_(std::move(make)) {
    if (!spare_core) return;
    Backend& on = backend(device);
    thread_ = std::async([this, &on, card = on.card()] { make_all(on, card); });
    has_thread_ = thread_.wait_for(std::chrono::seconds(0)) != std::future_status::deferred;
  }
  Ahead(const Ahead&) = delete;
  ~Ahead() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_one();
  }

  T next() {
    if (!has_thread_) return make_();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return made_ || error_; });
    if (error_) std::rethrow_exception(error_);
    auto [value, arrive] = std::move(*made_);
    made_.reset();
    changed_.notify_one();
    lock.unlock();
    arrive();
    return std::move(value);
  }

 private:
  void make_all(Backend& on, int card) {
    try {
      on.use_card(card);
      std::unique_lock lock(mutex_);
      while (!ended_) {
        lock.unlock();
        T value = make_();
        std::function<void()> arrive = on.record_event();
        lock.lock();
        made_.emplace(std::move(value), std::move(arrive));
        changed_.notify_one();
        changed_.wait(lock, [this] { return !made_ || ended_; });
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      changed_.notify_one();
    }
  }

  std::function<T()> make_;
  bool has_thread_ = false;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::optional<std::pair<T, std::function<void()>>> made_;  // with what lets this thread's work follow its copies
  std::exception_ptr error_;
  bool ended_ = false;
  std::future<void> thread_;  // its destructor waits
};

// What each micro-batch of a step reads. It is found by the samples, since a step may encode them more than once.
template <class T> class ByMicroBatch {
 public:
  template <class Make> ByMicroBatch(const LocalBatch& batch, const Make& make) {
    for (const MicroBatch& micro : batch.micro_batches)
      if (find(first_of(micro.samples)) == values_.end())
        values_.emplace_back(first_of(micro.samples), make(micro.samples));
  }
  const T& of(std::span<const int64_t> samples) const { return find(first_of(samples))->second; }
  std::vector<Tensor*> tensors() {  // in the order of the micro-batches
    std::vector<Tensor*> all;
    for (auto& [first, value] : values_)
      for (Tensor* tensor : value.tensors()) all.push_back(tensor);
    return all;
  }

 private:
  static int64_t first_of(std::span<const int64_t> samples) { return samples.empty() ? -1 : samples[0]; }
  auto find(int64_t first) const {
    return std::find_if(values_.begin(), values_.end(), [=](const auto& value) { return value.first == first; });
  }

  std::vector<std::pair<int64_t, T>> values_;  // by first sample
};

// What the steps of a run read, from `step` on, whose batch is the next of `batches`. `make(samples, step)` returns it
// for some samples, on the host (see Workers), and may run on other threads than the steps.
template <class Make>
auto data_ahead(Batches batches, const Training& training, int64_t step, Make make, const BesideSteps& beside) {
  using Data = ByMicroBatch<std::invoke_result_t<Make, std::span<const int64_t>, int64_t>>;
  const auto next = [batches = std::move(batches), &training, step, make = std::move(make), beside,
                     workers = std::make_shared<Workers>(beside.threads)]() mutable {
    const double begin = seconds_now();
    const auto of_step = [&](std::span<const int64_t> samples) { return make(samples, step); };
    const auto of_micro_batch = [&](std::span<const int64_t> samples) {
      return workers->make_rows(samples, of_step).to(beside.device);
    };
    Data data(training.local_batch(batches.next()), of_micro_batch);
    ++step;
    if (beside.threads > 0 && beside.timeline)
      beside.timeline->add(("data of step " + text(step)).c_str(), begin, seconds_now(), Timeline::Kind::beside);
    return data;
  };
  return Ahead<Data>(next, beside.threads > 0, beside.device);
}

}  // namespace weft
