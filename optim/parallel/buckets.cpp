// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/buckets.h"

#include <algorithm>

#include "weft/engine/kernels/backend.h"

namespace weft {

Buckets::Buckets(const FlatLayout& layout, int64_t elements, Communicator& comm, Keep keep)
    : layout_(layout),
      comm_(comm),
      keeps_memory_(keep == Keep::memory),
      bucket_of_(layout.places().size()),
      present_(layout.places().size()),
      expected_(layout.places().size()),
      arrived_(layout.places().size(), true) {
  require(elements > 0, "buckets: of ", elements, " elements");
  const std::vector<Place>& places = layout_.places();
  require(!places.empty(), "buckets: there are no parameters");
  int64_t end = layout_.padded_size(), last = static_cast<int64_t>(places.size());
  for (int64_t place = last; place-- > 0;) {
    const int64_t begin = places[static_cast<size_t>(place)].begin;
    bucket_of_[static_cast<size_t>(place)] = count();
    if (end - begin < elements && place > 0) continue;
    buckets_.push_back({{place == 0 ? 0 : begin, end}, place, last, {}});
    end = begin;
    last = place;
  }
  gradients_.take_only([this](const Parameter& parameter) { return layout_.find(parameter) >= 0; });
  // Memory that take() moves out must not hold a part of a sum that arrives later.
  gradients_.keep_in([this](const Parameter& parameter) { return place_for(parameter); }, keeps_memory_);
}

void Buckets::keep_in(Tensor memory) {
  backend(memory.device()).fill(0, memory);
  for (Bucket& bucket : buckets_) bucket.memory = memory.slice(bucket.range.first, bucket.range.last);
}

Tensor Buckets::view(Bucket& bucket, int64_t place) {
  if (!bucket.memory.defined()) {
    const size_t bytes = static_cast<size_t>(bucket.range.size()) * size_of(layout_.dtype());
    const bool on_host = layout_.device() == Device::cpu;
    bucket.memory =
        Tensor(on_host ? comm_.allocate_shown(bytes) : StorageHandle(backend(layout_.device()).allocate(bytes)), 0,
               {bucket.range.size()}, layout_.dtype());
    backend(layout_.device()).fill(0, bucket.memory);
  }
  const Place& at = layout_.places()[static_cast<size_t>(place)];
  const int64_t begin = at.begin - bucket.range.first;
  return bucket.memory.slice(begin, begin + at.size).reshape(at.parameter->value.shape());
}

Tensor Buckets::place_for(const Parameter& parameter) {
  const int64_t place = layout_.find(parameter);
  present_[static_cast<size_t>(place)] = true;
  return view(at(bucket_of_[static_cast<size_t>(place)]), place);
}

void Buckets::start_pass() {
  const bool any_arrived = std::find(arrived_.begin(), arrived_.end(), true) != arrived_.end();
  if (any_arrived) expected_.swap(arrived_);
  arrived_.assign(arrived_.size(), false);
  for (Bucket& bucket : buckets_)
    bucket.expected = bucket.missing =
        std::count(expected_.begin() + bucket.first_place, expected_.begin() + bucket.last_place, true);
}

void Buckets::arrived(const Parameter& parameter) {
  const auto place = static_cast<size_t>(layout_.find(parameter));
  if (expected_[place] && !arrived_[place]) --at(bucket_of_[place]).missing;
  arrived_[place] = true;
}

bool Buckets::complete(int64_t bucket) const {
  while (bucket < count() && at(bucket).expected == 0) ++bucket;
  return bucket < count() && at(bucket).missing == 0;
}

// Every addition to a gradient changes the version of the bucket's memory, even without hooks.
bool Buckets::changed(int64_t bucket) const {
  const Tensor& memory = at(bucket).memory;
  return memory.defined() && memory.version() != at(bucket).taken;
}

Tensor Buckets::take(int64_t index) {
  gradients_.compute_sums();
  Bucket& bucket = at(index);
  for (int64_t place = bucket.first_place; place < bucket.last_place; ++place)
    if (!has(place)) {
      Tensor unused = view(bucket, place);
      backend(unused.device()).fill(0, unused);
    }
  view(bucket, bucket.first_place);
  bucket.taken = keeps_memory_ ? bucket.memory.version() : 0;
  if (keeps_memory_) return bucket.memory;
  for (int64_t place = bucket.first_place; place < bucket.last_place; ++place)
    gradients_.forget(*layout_.places()[static_cast<size_t>(place)].parameter);
  return std::move(bucket.memory);
}

void Buckets::clear() {
  gradients_.clear();
  std::fill(present_.begin(), present_.end(), false);
  for (Bucket& bucket : buckets_)
    if (!keeps_memory_) bucket.memory = {};
}

}  // namespace weft
