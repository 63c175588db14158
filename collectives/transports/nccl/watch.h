// SPDX-License-Identifier: Apache-2.0
#pragma once
// Aborts work on a card that is stuck. A rank that waits for its card is in the driver, where neither Weft's deadline
// nor the failure of a peer can end the wait. So a thread checks the work on the card at regular intervals. If a call
// of the driver or the library keeps this thread, too, no thread can abort anything: then the process ends.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "weft/collectives/transport.h"
#include "weft/collectives/transports/job/last_words.h"

namespace weft {

// Pieces of work are numbered from 1 and done in order. At most `capacity` of them are unfinished, each in its slot.
class Watch {
 public:
  static constexpr uint64_t capacity = 64;
  static size_t slot(uint64_t work) { return work % capacity; }

  enum class Stage { queued, running, done };  // queued work waits for this rank's own work, not for peers
  // Only one thread calls these at a time, the rank's or the watch's.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void begin_watch() {}  // called on the watch's new thread
    virtual Stage stage(size_t slot) = 0;
    virtual std::optional<Fault> error(const Call& call) = 0;  // an error that the library reports
    virtual void failed(const Fault&) {}                       // called once, before all work ends
    virtual void abort() = 0;                                  // ends all work
  };

  // The last deadline is for one check: the same deadline, but not less than `shortest`.
  static constexpr std::chrono::milliseconds shortest_last_deadline = std::chrono::seconds(10);
  Watch(Watched& watched, std::chrono::milliseconds deadline, GlobalRank rank = {});
  Watch(const Watch&) = delete;
  ~Watch();

  // `next` waits until a slot is free, and returns the number of the next piece of work; `begin` counts it as enqueued.
  bool has_room();  // whether `next` need not wait
  uint64_t next();
  void begin(const Call& call);
  bool is_done(uint64_t work);  // as of the last check
  bool look(uint64_t work);     // checks whether it is done; throws the fault if something was aborted

  // While the caller holds this lock, nothing is aborted. Throws the fault if something was aborted before.
  std::unique_lock<std::mutex> hold();
  [[noreturn]] void fail(const Fault& fault);  // aborts all work; the caller must not hold the lock
  void throw_unreported();                     // throws the fault if no call has thrown it yet

 private:
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void throw_fault();
  void check();
  void check_until_stopped();
  void end(const Fault& fault);
  [[noreturn]] void end_process_of(GlobalRank rank);

  Watched& watched_;
  const std::chrono::milliseconds deadline_, pause_;  // pause_: between two checks of the thread
  std::mutex mutex_;                                  // guards all members below, and calls to the watched
  std::condition_variable stop_;
  bool stopped_ = false;
  uint64_t begun_ = 0, done_ = 0;
  std::array<Call, capacity> calls_;
  Clock::time_point last_check_ = Clock::now();
  Clock::time_point running_since_;  // since when, at the latest, the first unfinished piece of work is running
  std::optional<Fault> fault_;
  bool reported_ = false;

  std::mutex last_mutex_;  // never held in a call of the driver
  std::string last_call_;  // the first unfinished one, as of its thread's last check
  TimeLimit last_deadline_;
  std::thread thread_;
};

}  // namespace weft
