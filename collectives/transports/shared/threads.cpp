// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/job/last_words.h"
#include "weft/collectives/transports/shared/shared_memory.h"

namespace weft {
namespace {

constexpr size_t address_space = size_t{64} << 30;  // for groups and messages; pages become real when they are used

// How long ranks may take to end once another has failed.
constexpr std::chrono::milliseconds grace(250);

class Ranks {
 public:
  Ranks(int n, std::chrono::milliseconds deadline, int first)
      : first_(first),
        job_(Job::create(Memory::of_this_process(address_space), n, deadline)),
        ended_(static_cast<size_t>(n)) {
    SharedMemory::lay_out(*job_, SharedMemory::AddressSpace::one_process);
  }

  void run(const std::function<void(std::unique_ptr<Transport>)>& body, const Stuck& stuck) {
    const LastWords last_words(*job_, LastWords::Ranks::threads);
    std::vector<std::thread> threads;
    for (int r = 0; r < job_->ranks(); ++r) try {
        threads.emplace_back([this, r, &body] { run(r, body); });
      } catch (const std::system_error& error) {  // ranks that are running already must end
        fail(r, std::make_exception_ptr(Error("run_ranks: no thread for rank " + text(first_ + r) + " of " +
                                              text(job_->ranks()) + ": " + error.what() +
                                              "; take fewer, or see ulimit -u and -v")));
        break;
      }
    wait(threads.size(), stuck);
    for (std::thread& thread : threads) thread.join();
    if (first_failure_) std::rethrow_exception(first_failure_);
    job_->check();  // the body that failed first may have swallowed the failure
  }

 private:
  void run(int r, const std::function<void(std::unique_ptr<Transport>)>& body) {
    try {
      const LastStack stack;
      job_->join(r, first_ + r);
      body(connect(r));
      connect(r)->finalize(Site::here());
    } catch (...) {
      fail(r, std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    ended_[static_cast<size_t>(r)] = true;
    change_.notify_one();
  }

  // A rank whose wait ended because another rank failed was not the first to fail, even if it calls this first.
  void fail(int r, const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex_);
    if (job_->record(r, fault_of(failure)) || job_->first_to_fail() == r) first_failure_ = with_place(r, failure);
    failed_ = true;
    change_.notify_one();
  }

  // Memory ends anywhere, so only the place of the rank tells what it was for. Other exceptions say what they are
  // about.
  std::exception_ptr with_place(int r, const std::exception_ptr& failure) const try {
    const Fault fault = fault_of(failure);
    if (fault.exit_code != exit_codes::out_of_memory) return failure;
    const std::string where = "\n  on rank " + text(first_ + r) + "; its last call was " + job_->doing(r);
    return std::make_exception_ptr(Fault(fault.exit_code, fault.what() + where));
  } catch (const std::bad_alloc&) {
    return failure;
  }

  static Fault fault_of(const std::exception_ptr& failure) try { std::rethrow_exception(failure); } catch (...) {
    return fault_being_handled();
  }

  // Waits until all ranks have ended, or one has failed and the grace period of the others is over.
  void wait(size_t started, const Stuck& stuck) {
    std::unique_lock lock(mutex_);
    const auto all_ended = [&] {
      return static_cast<size_t>(std::count(ended_.begin(), ended_.end(), true)) == started;
    };
    change_.wait(lock, [&] { return failed_ || all_ended(); });
    if (change_.wait_for(lock, grace, all_ended)) return;
    std::string who;
    for (size_t r = 0; r < started; ++r)
      if (!ended_[r])
        who += "\n  rank " + text(first_ + static_cast<int>(r)) + " does not end, and no thread can be made to";
    lock.unlock();
    const int first = job_->first_to_fail();
    const Fault fault(job_->failure().exit_code, job_->failure().what() + who);
    if (stuck) stuck(first_ + first, fault);
    write_report("weft: run_ranks waits for a rank that does not end, because rank " + text(first_ + first) +
                 " failed\n  " + fault.what() + "\n");
  }

  std::unique_ptr<SharedMemory> connect(int r) {
    return SharedMemory::connect(job_, r, SharedMemory::AddressSpace::one_process);
  }

  const int first_;  // the number of the first in reports
  std::shared_ptr<Job> job_;
  std::mutex mutex_;  // guards all below
  std::condition_variable change_;
  std::vector<bool> ended_;
  bool failed_ = false;
  std::exception_ptr first_failure_;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Transport>)>& body,
               std::chrono::milliseconds deadline, const Stuck& stuck, int first) {
  require(ranks > 0, "run_ranks: ", ranks, " ranks");
  Ranks(ranks, deadline, first).run(body, stuck);
}

}  // namespace weft
