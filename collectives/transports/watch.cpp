#include "collectives/transports/watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace weft {

using namespace std::chrono_literals;

Watch::Watch(Watched& watched, std::chrono::milliseconds deadline)
    : watched_(watched), deadline_(deadline), pause_(std::clamp<std::chrono::milliseconds>(deadline / 8, 1ms, 100ms)) {
  try {
    thread_ = std::thread([this] { look_again_and_again(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("a thread that watches the card: ") + error.what());
  }
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  over_.notify_one();
  thread_.join();
}

uint64_t Watch::next() {
  for (;; std::this_thread::sleep_for(20us)) {
    const auto lock = hold();
    look();
    if (begun_ - done_ < capacity) return begun_ + 1;
  }
}

void Watch::begun(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (begun_ == done_) running_since_ = Clock::now();
  calls_[slot(++begun_)] = call;
}

bool Watch::is_done(uint64_t work) {
  const std::lock_guard lock(mutex_);
  return work <= done_;
}

std::unique_lock<std::mutex> Watch::hold() {
  std::unique_lock lock(mutex_);
  if (fault_) raise();
  return lock;
}

void Watch::raise_unseen() {
  const std::lock_guard lock(mutex_);
  if (fault_ && !seen_) raise();
}

void Watch::raise() {
  seen_ = true;
  throw *fault_;
}

void Watch::fail(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  end(fault);
  raise();
}

void Watch::end(const Fault& fault) {
  if (fault_) return;
  fault_ = fault;
  watched_.abort();
}

void Watch::look() {
  if (fault_) return;
  // After a pause that is far longer than those of the watch's thread, this process had been stopped.
  const auto now = Clock::now(), looked = std::exchange(looked_, now);
  if (now - looked > 8 * pause_) running_since_ = std::min(now, running_since_ + (now - looked));
  const uint64_t before = done_;
  Stage stage = Stage::done;
  while (done_ < begun_ && (stage = watched_.stage(slot(done_ + 1))) == Stage::done) ++done_;
  const Call& call = calls_[slot(done_ + (done_ < begun_))];
  if (const auto trouble = watched_.trouble(call)) return end(*trouble);
  if (done_ == begun_) return;
  if (done_ != before || stage == Stage::queued) running_since_ = now;
  if (now - running_since_ >= deadline_)
    end(Fault(exit_codes::deadline, "deadline: the card has waited " + text(deadline_.count()) +
                                        " ms for the cards of its peers in " + call.text()));
}

void Watch::look_again_and_again() {
  watched_.begin_watch();
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, pause_, [this] { return leaving_; })) look();
}

}  // namespace weft
