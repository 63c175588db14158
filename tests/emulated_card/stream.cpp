// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/stream.h"

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "tests/emulated_card/null_card.h"

namespace weft::emulated {

namespace {

constexpr std::chrono::milliseconds lateness(50);

// None is ever destroyed.
struct Streams {
  std::mutex mutex;
  std::vector<Stream*> all;
};
Streams& streams() {
  static Streams& instance = *new Streams;
  return instance;
}

}  // namespace

Stream::Stream(int card) : card_(card), worker_([this] { work(); }) {
  const std::lock_guard lock(streams().mutex);
  streams().all.push_back(this);
}

void Stream::await_all_of(int card) {
  const std::vector<Stream*> all = [] {
    const std::lock_guard lock(streams().mutex);
    return streams().all;
  }();
  for (Stream* const stream : all)
    if (stream->card() == card) stream->await(stream->asked());
}

void Stream::end() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_or_wanted_.notify_one();
  worker_.join();
}

void Stream::enqueue_product(Work work) {
  count(Asked::product);
  enqueue(std::move(work), card_);
}

uint64_t Stream::enqueue(Work work, int touched) {
  const std::lock_guard lock(mutex_);
  if (!null_card()) queue_.emplace_back(std::move(work), touched);
  asked_or_wanted_.notify_one();
  return ++asked_;
}

uint64_t Stream::asked() {
  const std::lock_guard lock(mutex_);
  return asked_;
}

bool Stream::is_done(uint64_t position) {
  const std::lock_guard lock(mutex_);
  wanted_ = std::max(wanted_, position);
  asked_or_wanted_.notify_one();
  return null_card() || done_ >= position;
}

void Stream::await(uint64_t position) {
  std::unique_lock lock(mutex_);
  if (null_card()) {
    if (done_ < position && position == asked_) count(Asked::wait);
    done_ = std::max(done_, position);
  }
  wanted_ = std::max(wanted_, position);
  asked_or_wanted_.notify_one();
  done_some_.wait(lock, [&] { return done_ >= position; });
}

void Stream::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_or_wanted_.wait(lock, [&] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (!asked_or_wanted_.wait_for(lock, lateness, [&] { return ending_ || wanted_ > done_; })) wanted_ = asked_;
    std::optional<Access> access;
    int open = no_card;
    while (!queue_.empty() && (ending_ || wanted_ > done_)) {
      const auto [next, touched] = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (open != touched) {
        access.reset();
        if (touched != no_card) access.emplace(touched);
        open = touched;
      }
      next();
      lock.lock();
      ++done_;
      done_some_.notify_all();
    }
  }
}

}  // namespace weft::emulated
