#include "collectives/transports/waiting.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace weft {

void Bell::ring() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep_unless_rung(uint32_t rings, std::chrono::milliseconds at_most) {
  const timespec time{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &rings_, FUTEX_WAIT, rings, &time, nullptr, 0);
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
