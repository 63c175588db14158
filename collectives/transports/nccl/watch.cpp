// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/watch.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace weft {

using namespace std::chrono_literals;

Watch::Watch(Watched& watched, std::chrono::milliseconds deadline, GlobalRank rank)
    : watched_(watched),
      deadline_(deadline),
      pause_(std::clamp<std::chrono::milliseconds>(deadline / 8, 1ms, 100ms)),
      last_deadline_(std::max(deadline, shortest_last_deadline), [this, rank] { end_process_of(rank); }) {
  try {
    thread_ = std::thread([this] { check_until_stopped(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("a thread that watches the card: ") + error.what());
  }
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_one();
  thread_.join();
}

bool Watch::has_room() {
  const auto lock = hold();
  check();
  return begun_ - done_ < capacity;
}

uint64_t Watch::next() {
  while (!has_room()) std::this_thread::sleep_for(20us);
  return begun_ + 1;
}

void Watch::begin(const Call& call) {
  const std::lock_guard lock(mutex_);
  if (begun_ == done_) running_since_ = Clock::now();
  calls_[slot(++begun_)] = call;
}

bool Watch::is_done(uint64_t work) {
  const std::lock_guard lock(mutex_);
  return work <= done_;
}

bool Watch::look(uint64_t work) {
  const auto lock = hold();
  check();
  if (fault_) throw_fault();
  return work <= done_;
}

std::unique_lock<std::mutex> Watch::hold() {
  std::unique_lock lock(mutex_);
  if (fault_) throw_fault();
  return lock;
}

void Watch::throw_unreported() {
  const std::lock_guard lock(mutex_);
  if (fault_ && !reported_) throw_fault();
}

void Watch::throw_fault() {
  reported_ = true;
  throw *fault_;
}

void Watch::fail(const Fault& fault) {
  const std::lock_guard lock(mutex_);
  end(fault);
  throw_fault();
}

void Watch::end(const Fault& fault) {
  if (fault_) return;
  fault_ = fault;
  watched_.failed(fault);
  watched_.abort();
}

void Watch::check() {
  if (fault_) return;
  // If the last check was much longer ago than the pause of the watch's thread, the process has been stopped meanwhile.
  const auto now = Clock::now(), last = std::exchange(last_check_, now);
  if (now - last > 8 * pause_) running_since_ = std::min(now, running_since_ + (now - last));
  const uint64_t before = done_;
  Stage stage = Stage::done;
  while (done_ < begun_ && (stage = watched_.stage(slot(done_ + 1))) == Stage::done) ++done_;
  const Call& call = calls_[slot(done_ + (done_ < begun_))];
  if (const auto error = watched_.error(call)) return end(*error);
  if (done_ == begun_) return;
  if (done_ != before || stage == Stage::queued) running_since_ = now;
  if (now - running_since_ >= deadline_)
    end(Fault(exit_codes::deadline, "deadline: the card has waited " + text(deadline_.count()) +
                                        " ms for the cards of its peers in " + call.text()));
}

void Watch::check_until_stopped() {
  watched_.begin_watch();
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, pause_, [this] { return stopped_; })) {
    {
      const std::lock_guard last_lock(last_mutex_);
      last_call_ = done_ < begun_ ? " in " + calls_[slot(done_ + 1)].text() : "";
    }
    check();
    last_deadline_.renew();
  }
}

void Watch::end_process_of(GlobalRank rank) {
  const std::lock_guard lock(last_mutex_);
  write_report("weft: rank " + text(rank) + " ends the job with exit code " + text(exit_codes::deadline) +
               ": deadline: a call of CUDA or NCCL has not returned for " +
               text(std::max(deadline_, shortest_last_deadline).count()) + " ms" + last_call_ + "\n");
  end_process(exit_codes::deadline, [](int) {});
}

}  // namespace weft
