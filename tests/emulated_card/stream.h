// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streams of a card that are as late as real ones can be: work is done when it is waited for, or else after a while.
// Host code that forgets to wait then reads old data.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/emulated_card/memory.h"

namespace weft::emulated {

class Stream {
 public:
  using Work = std::function<void()>;

  explicit Stream(int card);
  virtual ~Stream() { end(); }
  Stream(const Stream&) = delete;

  int card() const { return card_; }

  // Work on the memory of a card, every_card's, or no_card's if it may wait for another stream; returns the position
  // after it.
  uint64_t enqueue(Work work, int touched);
  // A product of cuBLAS on the stream's own card. Virtual, so that this library, which is loaded later, can call it
  // without being linked with this one.
  virtual void enqueue_product(Work work);

  uint64_t asked();
  bool is_done(uint64_t position);  // asking makes it run soon
  void await(uint64_t position);
  static void await_all_of(int card);  // all work on its streams so far
  void end();                          // does the rest; is_done stays valid

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable asked_or_wanted_, done_some_;
  std::deque<std::pair<Work, int>> queue_;
  uint64_t asked_ = 0, wanted_ = 0, done_ = 0;
  bool ending_ = false;
  const int card_;
  std::thread worker_;
};

struct Event {
  const int card;
  Stream* stream = nullptr;  // null: never recorded, hence done
  uint64_t position = 0;
};

}  // namespace weft::emulated
