// SPDX-License-Identifier: Apache-2.0
#include "weft/data/batches.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <sstream>
#include <utility>

#include "weft/data/files/input_file.h"  // MalformedInput
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

std::string position_in(const std::string& batches, uint64_t epoch, int64_t drawn) {
  return "epoch " + std::to_string(epoch) + " batch " + std::to_string(drawn) + " of " + batches;
}

constexpr uint64_t order_stream = 0x6f72646572;  // "order", so that other uses of the seed draw other numbers

// The floating value of each of the 256 pixel values.
template <class T> std::array<T, 256> pixel_values() {
  std::array<T, 256> result;
  for (int i = 0; i < 256; ++i) result[i] = T(static_cast<Compute<T>>(i) / 255);
  return result;
}

}  // namespace

Epoch::Epoch(int64_t samples, int64_t batch_size, uint64_t seed, uint64_t epoch) : batch_size_(batch_size) {
  require(samples >= 0 && batch_size > 0, "epoch: ", samples, " samples cannot be cut into batches of ", batch_size);
  order_.resize(static_cast<size_t>(samples));
  std::iota(order_.begin(), order_.end(), int64_t{0});
  const Random random = Random{seed}.fork(order_stream).fork(epoch);
  for (int64_t i = samples - 1; i > 0; --i) {  // the shuffle of Fisher and Yates
    const auto other = static_cast<int64_t>(uniform_draw<double>(random, i) * static_cast<double>(i + 1));
    std::swap(order_[i], order_[other]);
  }
}

int64_t Epoch::steps() const { return (static_cast<int64_t>(order_.size()) + batch_size_ - 1) / batch_size_; }

std::span<const int64_t> Epoch::batch(int64_t step) const {
  require(step >= 0 && step < steps(), "epoch: step ", step, " of ", steps());
  const auto first = static_cast<size_t>(step * batch_size_);
  return order().subspan(first, std::min(static_cast<size_t>(batch_size_), order_.size() - first));
}

Batches::Batches(int64_t samples, int64_t batch_size, uint64_t seed)
    : samples_(samples), batch_size_(batch_size), seed_(seed), epoch_(samples, batch_size, seed, 0) {
  require(samples > 0, "batches: there are no samples to draw");
}

std::span<const int64_t> Batches::next() {
  if (drawn_ == epoch_.steps()) {
    epoch_ = Epoch(samples_, batch_size_, seed_, ++number_);
    drawn_ = 0;
  }
  return epoch_.batch(drawn_++);
}

std::string Batches::description() const {
  return std::to_string(samples_) + " samples, " + std::to_string(batch_size_) + " at a time, seed " +
         std::to_string(seed_);
}

std::string Batches::position() const { return position_in(description(), number_, drawn_); }

void Batches::seek(const std::string& position) {
  std::istringstream words(position);
  std::string epoch, batch, of, others;
  uint64_t number = 0;
  int64_t drawn = -1;
  words >> epoch >> number >> batch >> drawn >> of >> std::ws;
  std::getline(words, others);
  // Writes the position again to compare, because streams read -1 as a large number and skip leading zeros and spaces.
  const bool as_written = position == position_in(others, number, drawn);
  if (!as_written || drawn < 0 || drawn > epoch_.steps())
    throw MalformedInput("batches: " + excerpt(position) + " is no position");
  if (others != description())
    throw MalformedInput("batches: the position is one in " + others + ", not in " + description());
  epoch_ = Epoch(samples_, batch_size_, seed_, number);
  number_ = number;
  drawn_ = drawn;
}

std::vector<int64_t> samples_between(int64_t first, int64_t last) {
  std::vector<int64_t> all(static_cast<size_t>(std::max<int64_t>(last - first, 0)));
  std::iota(all.begin(), all.end(), first);
  return all;
}

LabelledImages subset(const LabelledImages& data, std::span<const int64_t> samples) {
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t pixels = data.images.shape().product(1, data.images.shape().rank());
  LabelledImages some{Tensor(data.images.shape().with(0, count), DType::u8), Tensor({count}, DType::i64)};
  auto* image = some.images.mutate<uint8_t>();
  auto* label = some.labels.mutate<int64_t>();
  for (const int64_t sample : samples) {
    require(sample >= 0 && sample < data.count(), "subset: sample ", sample, " of ", data.count());
    image = std::copy_n(data.images.data<uint8_t>() + sample * pixels, pixels, image);
    *label++ = data.labels.data<int64_t>()[sample];
  }
  return some;
}

Batch take(const LabelledImages& data, std::span<const int64_t> samples, DType dtype) {
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t pixels = data.images.shape().product(1, data.images.shape().rank());
  Batch batch{Tensor(data.images.shape().with(0, count), dtype), Tensor({count}, DType::i64)};
  auto* labels = batch.labels.mutate<int64_t>();
  visit_floating(dtype, [&]<class T>() {
    static const std::array<T, 256> values = pixel_values<T>();
    T* to = batch.images.mutate<T>();
    for (const int64_t sample : samples) {
      require(sample >= 0 && sample < data.count(), "take: sample ", sample, " of ", data.count());
      const uint8_t* from = data.images.data<uint8_t>() + sample * pixels;
      to = std::transform(from, from + pixels, to, [](uint8_t pixel) { return values[pixel]; });
      *labels++ = data.labels.data<int64_t>()[sample];
    }
  });
  return batch;
}

}  // namespace weft
