// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/waiting.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weft {

void FutexEvent::wake_all() {
  wakes_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &wakes_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void FutexEvent::sleep_unless_woken(uint32_t wakes, std::chrono::milliseconds at_most) {
  const timespec time{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &wakes_, FUTEX_WAIT, wakes, &time, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void let_others_run() { sched_yield(); }

}  // namespace weft
