// SPDX-License-Identifier: Apache-2.0
#pragma once
// Prepares the data of the next step while the current one computes, if a core is free for that. The values, and their
// order, are the same either way.
//
//   auto ahead = data_ahead(batches, training, run.steps_done(), make, has_spare_core(rank.comm));
//   while (run.running()) {
//     const auto data = run.data([&] { return ahead.next(); });
//     ...
//     use(data.of(micro.samples));
#include <algorithm>
#include <functional>
#include <future>
#include <utility>
#include <vector>

#include "weft/collectives/communicator.h"
#include "weft/data/batches.h"
#include "weft/optim/training.h"

namespace weft {

// Whether each rank of this machine has a core besides its own. All ranks call it.
bool has_spare_core(Communicator& comm);

template <class T> class Ahead {
 public:
  // `make` returns the values one after the other. It runs on a thread of its own if `spare_core`.
  Ahead(std::function<T()> make, bool spare_core) : make_(std::move(make)), spare_core_(spare_core) {}

  T next() {
    if (!spare_core_) return make_();
    T value = coming_.valid() ? coming_.get() : make_();
    coming_ = std::async(make_one, this);
    return value;
  }

 private:
  static T make_one(Ahead* ahead) { return ahead->make_(); }

  std::function<T()> make_;
  const bool spare_core_;
  std::future<T> coming_;  // its destructor waits
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
// for one micro-batch of this rank, and may run on another thread than the steps.
template <class Make>
auto data_ahead(Batches batches, const Training& training, int64_t step, Make make, bool spare_core) {
  using Data = ByMicroBatch<std::invoke_result_t<Make, std::span<const int64_t>, int64_t>>;
  const auto next = [batches = std::move(batches), &training, step, make = std::move(make)]() mutable {
    const auto of_step = [&](std::span<const int64_t> samples) { return make(samples, step); };
    Data data(training.local_batch(batches.next()), of_step);
    ++step;
    return data;
  };
  return Ahead<Data>(next, spare_core);
}

}  // namespace weft
