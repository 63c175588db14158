// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a rank waits for others: it polls in a loop, then it yields to other threads between polls, then it sleeps in the
// kernel until a rank wakes it.
#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

// Spinning helps only if every rank has a core of its own. Then the wait usually ends within microseconds, far sooner
// than the kernel could wake a sleeping thread.
struct SpinPolicy {
  int spins, yields;
  static SpinPolicy of(int ranks, int cores) { return ranks <= cores ? SpinPolicy{3000, 200} : SpinPolicy{1, 1}; }
};

// Ranks that wait for the same thing sleep on one event, and the rank that completes it wakes them all. The event is in
// memory that processes share.
class FutexEvent {
 public:
  // To be called after the sequentially consistent store that others may be waiting for.
  bool has_sleepers() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  void wake_all();

  // Sleeps until wake_all is called or the time is over, unless done() holds already.
  template <class Done> void sleep(std::chrono::milliseconds at_most, Done&& done) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t wakes = wakes_.load(std::memory_order_seq_cst);
    if (!done()) sleep_unless_woken(wakes, at_most);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void sleep_unless_woken(uint32_t wakes, std::chrono::milliseconds at_most);

  std::atomic<uint32_t> wakes_{0};
  std::atomic<int32_t> sleepers_{0};
};

void relax();  // tells the core that the thread is spinning
void let_others_run();

// Where others keep the core, each yield lasts as long as they are allowed to run.
inline constexpr std::chrono::microseconds longest_yielding(1000);

// Waits until done() holds. While the rank sleeps, `meanwhile` is called after each pause; it throws if waiting is
// pointless.
template <class Done, class Meanwhile>
void wait_for(SpinPolicy spin_policy, FutexEvent& event, std::chrono::milliseconds pause, Done&& done,
              Meanwhile&& meanwhile) {
  for (int i = 0; i < spin_policy.spins; ++i, relax())
    if (done()) return;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < spin_policy.yields && std::chrono::steady_clock::now() - begin < longest_yielding;
       ++i, let_others_run())
    if (done()) return;
  for (;; meanwhile()) {
    event.sleep(pause, done);
    if (done()) return;
  }
}

}  // namespace weft
