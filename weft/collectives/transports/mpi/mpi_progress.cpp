// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_progress.h"

#include <mpi.h>

#include <chrono>

namespace weft {

MpiProgress::~MpiProgress() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MpiProgress::change_needs(int by) {
  const std::lock_guard lock(mutex_);
  needs_ += by;
  if (needs_ == 1 && by == 1) changed_.notify_one();
  if (needs_ > 0 && !thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void MpiProgress::run() {
  constexpr std::chrono::microseconds pause(200);  // a link of 1 Gbit carries 25 KB in it, which buffers hold
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return needs_ > 0 || ends_; });
    if (ends_) return;
    lock.unlock();
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &found, MPI_STATUS_IGNORE);  // moves what can move
    std::this_thread::sleep_for(pause);
    lock.lock();
  }
}

}  // namespace weft
