// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams of a card that are as late as real ones can be: work is done when it is waited for, or else after a while.
// Host code that forgets to wait then reads old data.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/emulated_card/clock.h"
#include "tests/emulated_card/memory.h"

namespace weft::emulated {

class Capture;

// A place on a stream, and what is done before it.
struct Place {
  size_t stream = 0;
  uint64_t position = 0;
  std::shared_ptr<const Clock> before;
};

class Stream {
 public:
  using Work = std::function<void()>;
  struct Entry {
    Work work;
    int touched;  // the card whose memory it is for: every_card, or no_card if it may wait for another stream
    When when;
  };

  explicit Stream(int card);
  virtual ~Stream() { end(); }
  Stream(const Stream&) = delete;

  int card() const { return card_; }
  size_t number() const { return number_; }

  // Virtual, so that a library that is loaded later can call them without being linked with this one.
  virtual bool is_current() const;              // whether the calling thread has selected its card
  virtual uint64_t enqueue_product(Work work);  // work on the memory of its card; returns the position after it
  virtual void access(const void* first, size_t bytes, bool writes, const char* user) const;  // by such work

  uint64_t enqueue(Work work);
  uint64_t enqueue(Work work, int touched);
  uint64_t enqueue(Entry entry);

  uint64_t asked();
  Place last();                     // of its work
  void follow(const Place& place);  // what is enqueued now comes after that
  bool is_done(uint64_t position);  // asking makes it run soon
  void await(uint64_t position);
  static void await_all_of(int card);  // all work on its streams so far
  void end();                          // does the rest; is_done stays valid

  // Until it ends, a capture records what is enqueued.
  std::shared_ptr<Capture> capture();
  void set_capture(std::shared_ptr<Capture> capture);

 private:
  struct Placed {
    Entry entry;
    Place place;
  };
  void work();
  Place place();
  void reach(const Clock& other);

  std::mutex mutex_;
  std::condition_variable asked_or_wanted_, done_some_;
  std::deque<Placed> queue_;
  uint64_t asked_ = 0, wanted_ = 0, done_ = 0;
  bool ending_ = false;
  const int card_;
  const size_t number_;
  std::shared_ptr<const Clock> before_;
  std::shared_ptr<Capture> capture_;
  std::thread worker_;
};

// What the host has seen done, which is before all that it enqueues later.
void see_done(const Place& place);

struct Event {
  struct Record {
    Stream* stream = nullptr;  // null: never recorded, hence done
    Place place{};
    std::shared_ptr<Capture> capture{};  // if it was recorded in one
    Clock reached{};                     // then
  };

  explicit Event(int card) : card(card) {}
  const int card;

  void set(Record record) {
    const std::lock_guard lock(mutex_);
    record_ = std::move(record);
  }
  Record get() {
    const std::lock_guard lock(mutex_);
    return record_;
  }

 private:
  std::mutex mutex_;
  Record record_;
};

}  // namespace weft::emulated
