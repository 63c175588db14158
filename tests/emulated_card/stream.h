#pragma once
// Streams that are as late as a real card's may be: what is asked of one is done when somebody waits for it, or else
// after a while. Host code that forgets to wait then reads what was there before.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace weft::emulated {

class Stream {
 public:
  using Work = std::function<void()>;

  Stream();
  virtual ~Stream() { end(); }
  Stream(const Stream&) = delete;

  // Virtual, so that a library that is loaded later can call it without being linked with this one.
  virtual uint64_t enqueue(Work work);  // how much has been asked for, this included

  uint64_t asked();
  bool is_done(uint64_t position);  // somebody cares: it shall not stay undone
  void await(uint64_t position);
  void end();  // does the rest; can still be asked whether it is done

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable asked_or_wanted_, done_some_;
  std::deque<Work> queue_;
  uint64_t asked_ = 0, wanted_ = 0, done_ = 0;
  bool ending_ = false;
  std::thread worker_;
};

struct Event {
  Stream* stream = nullptr;  // null: never recorded, hence done
  uint64_t position = 0;
};

}  // namespace weft::emulated
