// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/stream.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "tests/emulated_card/access.h"
#include "tests/emulated_card/capture.h"
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

size_t next_number() {
  static std::atomic<size_t> number = 0;
  return ++number;
}

// What the host has seen done.
struct Done {
  std::mutex mutex;
  Clock clock;
};
Done& done() {
  static Done& instance = *new Done;
  return instance;
}

}  // namespace

void see_done(const Place& place) {
  const std::lock_guard lock(done().mutex);
  done().clock.reach(place.stream, place.position);
  if (place.before) done().clock.reach(*place.before);
}

Stream::Stream(int card)
    : card_(card), number_(next_number()), before_(std::make_shared<Clock>()), worker_([this] { work(); }) {
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

bool Stream::is_current() const { return card_ == current_card; }
void Stream::access(const void* first, size_t bytes, bool writes, const char* user) const {
  name_work(user);
  emulated::access(first, bytes, writes);
}

uint64_t Stream::enqueue_product(Work work) {
  if (!capture()) count(Asked::product);
  return enqueue(std::move(work), card_);
}
uint64_t Stream::enqueue(Work work) { return enqueue(std::move(work), card_); }
uint64_t Stream::enqueue(Work work, int touched) { return enqueue({std::move(work), touched, {now()}}); }

uint64_t Stream::enqueue(Entry entry) {
  if (const auto capture = this->capture()) return capture->record(*this, std::move(entry)), asked();
  const std::lock_guard lock(mutex_);
  ++asked_;
  if (null_card()) return asked_;
  queue_.push_back({std::move(entry), place()});
  asked_or_wanted_.notify_one();
  return asked_;
}

Place Stream::place() {
  const std::lock_guard lock(done().mutex);
  reach(done().clock);
  return {number_, asked_, before_};
}
Place Stream::last() {
  const std::lock_guard lock(mutex_);
  return place();
}
void Stream::follow(const Place& place) {
  const std::lock_guard lock(mutex_);
  Clock clock = *place.before;
  clock.reach(place.stream, place.position);
  reach(clock);
}
void Stream::reach(const Clock& other) {
  if (before_->has_reached(other)) return;
  Clock clock = *before_;
  clock.reach(other);
  before_ = std::make_shared<const Clock>(std::move(clock));
}

std::shared_ptr<Capture> Stream::capture() {
  const std::lock_guard lock(mutex_);
  return capture_;
}
void Stream::set_capture(std::shared_ptr<Capture> capture) {
  const std::lock_guard lock(mutex_);
  capture_ = std::move(capture);
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
      const auto [entry, place] = std::move(queue_.front());
      const int touched = entry.touched;
      queue_.pop_front();
      lock.unlock();
      if (open != touched) {
        access.reset();
        if (touched != no_card) access.emplace(touched);
        open = touched;
      }
      begin_work(entry.when, place);
      entry.work();
      lock.lock();
      ++done_;
      done_some_.notify_all();
    }
  }
}

}  // namespace weft::emulated
