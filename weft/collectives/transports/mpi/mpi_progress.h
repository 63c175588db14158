// SPDX-License-Identifier: Apache-2.0
#pragma once
// A thread that lets MPI move data while the ranks of this process compute. Most MPI libraries send and receive long
// messages only within calls, and a rank that computes makes none. The thread sleeps unless collectives are started.
#include <condition_variable>
#include <mutex>
#include <thread>

namespace weft {

class MpiProgress {
 public:
  MpiProgress() = default;
  MpiProgress(const MpiProgress&) = delete;
  ~MpiProgress();

  // As long as it lives, data move. `progress` may be null.
  class Need {
   public:
    explicit Need(MpiProgress* progress) : progress_(progress) { change(1); }
    Need(const Need&) = delete;
    ~Need() { change(-1); }

   private:
    void change(int by) {
      if (progress_) progress_->change_needs(by);
    }
    MpiProgress* const progress_;
  };

 private:
  void change_needs(int by);
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  int needs_ = 0;
  bool ends_ = false;
  std::thread thread_;  // begins with the first need
};

}  // namespace weft
