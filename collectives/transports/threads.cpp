#include <mutex>
#include <thread>
#include <vector>

#include "collectives/run_ranks.h"
#include "collectives/transports/shared_memory.h"

namespace weft {
namespace {

constexpr size_t address_space = size_t{64} << 30;  // boards and messages; becomes memory where it is used

// Why one rank failed, as those who are told of it should see it.
Fault fault_of(const std::exception_ptr& failure) try { std::rethrow_exception(failure); } catch (const Fault& fault) {
  return fault;
} catch (const std::exception& exception) {
  return Fault(exit_codes::exception, exception.what());
} catch (...) {
  return Fault(exit_codes::exception, "an exception that is not a std::exception");
}

class Ranks {
 public:
  Ranks(int n, std::chrono::milliseconds deadline)
      : job_(Job::create(Memory::of_this_process(address_space), n, deadline)) {
    SharedMemory::lay_out(*job_, SharedMemory::Sight::everything);
  }

  void run(const std::function<void(std::unique_ptr<Transport>)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < job_->ranks(); ++r) threads.emplace_back([this, r, &body] { run(r, body); });
    for (std::thread& thread : threads) thread.join();
    if (first_failure_) std::rethrow_exception(first_failure_);
    job_->check();  // the body that failed first may have swallowed the failure
  }

 private:
  void run(int r, const std::function<void(std::unique_ptr<Transport>)>& body) try {
    job_->join(r);
    body(connect(r));
    connect(r)->finalize(Site::here());
  } catch (...) {
    // Who waits in vain because of another's failure was not the first, whoever is quicker to get here.
    const std::exception_ptr failure = std::current_exception();
    const std::lock_guard lock(mutex_);
    if (job_->record(r, fault_of(failure)) || job_->first_to_fail() == r) first_failure_ = failure;
  }

  std::unique_ptr<SharedMemory> connect(int r) {
    return SharedMemory::connect(job_, r, SharedMemory::Sight::everything);
  }

  std::shared_ptr<Job> job_;
  std::mutex mutex_;
  std::exception_ptr first_failure_;
};

}  // namespace

void run_ranks(int n, const std::function<void(std::unique_ptr<Transport>)>& body, std::chrono::milliseconds deadline) {
  require(n > 0, "run_ranks: ", n, " ranks");
  Ranks(n, deadline).run(body);
}

}  // namespace weft
