#pragma once
// Ends what a card does in vain. A rank that waits for its card sits in the driver, where no deadline of ours reaches
// it and no failed peer is noticed; so a thread looks at the work on the card now and then, and aborts what is stuck.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "collectives/transport.h"

namespace weft {

// Work is numbered from 1 on and done in that order; at most `capacity` pieces of it are under way, each in its slot.
class Watch {
 public:
  static constexpr uint64_t capacity = 64;
  static size_t slot(uint64_t work) { return work % capacity; }

  enum class Stage { queued, running, done };  // queued: behind this rank's own work, which is nobody's fault
  // Called by one thread at a time, the rank's or the watch's.
  class Watched {
   public:
    virtual ~Watched() = default;
    virtual void begin_watch() {}  // the watch's thread is new
    virtual Stage stage(size_t slot) = 0;
    virtual std::optional<Fault> trouble(const Call& call) = 0;  // what the library has noticed by itself
    virtual void abort() = 0;                                    // after which all work is done
  };

  Watch(Watched& watched, std::chrono::milliseconds deadline);
  Watch(const Watch&) = delete;
  ~Watch();

  // The number of the next piece of work, once its slot is free; and that it is under way now.
  uint64_t next();
  void begun(const Call& call);
  bool is_done(uint64_t work);

  // While this is held, nothing is aborted. Raises the fault if something was.
  std::unique_lock<std::mutex> hold();
  [[noreturn]] void fail(const Fault& fault);  // aborts; not while holding
  void raise_unseen();                         // the fault, if nobody has had it yet

 private:
  using Clock = std::chrono::steady_clock;

  [[noreturn]] void raise();
  void look();
  void look_again_and_again();
  void end(const Fault& fault);

  Watched& watched_;
  const std::chrono::milliseconds deadline_, pause_;  // between two looks
  std::mutex mutex_;                                  // guards all below, and the watched
  std::condition_variable over_;
  bool leaving_ = false;
  uint64_t begun_ = 0, done_ = 0;
  std::array<Call, capacity> calls_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point running_since_;  // the first piece that is not done; or when it was last seen not running
  std::optional<Fault> fault_;
  bool seen_ = false;
  std::thread thread_;
};

}  // namespace weft
