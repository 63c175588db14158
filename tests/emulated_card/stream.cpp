#include "tests/emulated_card/stream.h"

#include <chrono>
#include <utility>

#include "tests/emulated_card/memory.h"

namespace weft::emulated {

constexpr std::chrono::milliseconds lateness(50);

Stream::Stream() : worker_([this] { work(); }) {}

void Stream::end() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  asked_or_wanted_.notify_one();
  worker_.join();
}

uint64_t Stream::enqueue(Work work) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(work));
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
  return done_ >= position;
}

void Stream::await(uint64_t position) {
  std::unique_lock lock(mutex_);
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
    const Access access;
    while (!queue_.empty() && (ending_ || wanted_ > done_)) {
      const Work next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      next();
      lock.lock();
      ++done_;
      done_some_.notify_all();
    }
  }
}

}  // namespace weft::emulated
