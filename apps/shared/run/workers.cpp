// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/run/workers.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace weft {

Workers::Workers(int64_t threads) {
  try {
    while (std::ssize(others_) + 1 < threads) others_.emplace_back([this](const std::stop_token& end) { serve(end); });
  } catch (const std::system_error&) {  // no thread is left: those that there are do the work
  }
}

void Workers::parallel_for(int64_t count, const Work& work) {
  constexpr int64_t ranges_of_a_thread = 2;  // so that none waits long for one that begins late
  std::unique_lock lock(mutex_);
  work_ = &work;
  next_ = 0;
  count_ = count;
  length_ = std::max<int64_t>(1, count / (ranges_of_a_thread * (std::ssize(others_) + 1)));
  begun_.notify_all();
  work_on_ranges(lock);
  ended_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Workers::serve(const std::stop_token& end) {
  std::unique_lock lock(mutex_);
  while (begun_.wait(lock, end, [this] { return next_ < count_; })) work_on_ranges(lock);
}

void Workers::work_on_ranges(std::unique_lock<std::mutex>& lock) {
  while (next_ < count_) {
    const int64_t begin = next_, end = next_ = std::min(begin + length_, count_);
    ++busy_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*work_)(begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
      next_ = count_;
    }
    if (--busy_ == 0) ended_.notify_one();
  }
}

}  // namespace weft
