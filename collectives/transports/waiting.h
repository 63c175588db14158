#pragma once
// How a rank waits for others without ever being busy for long: a few looks in a row, then letting other threads run
// between looks, then asleep in the kernel until somebody rings.
#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

// Looking in a row helps only while every rank has a core of its own. Then an answer usually comes within microseconds,
// far sooner than the kernel could wake anybody up.
struct Patience {
  int looks, yields;
  static Patience of(int ranks, int cores) { return ranks <= cores ? Patience{3000, 200} : Patience{1, 1}; }
};

// Ranks that wait for the same thing sleep on one bell; whoever completes it rings. Lives in memory shared by
// processes.
class Bell {
 public:
  // Call after the change that others may be waiting for has been made, with a sequentially consistent store.
  bool anyone_asleep() const { return sleepers_.load(std::memory_order_seq_cst) != 0; }
  void ring();

  // Sleeps until the bell rings or the time is over, unless `done()` holds already.
  template <class Done> void sleep(std::chrono::milliseconds at_most, Done&& done) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t rings = rings_.load(std::memory_order_seq_cst);
    if (!done()) sleep_unless_rung(rings, at_most);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  void sleep_unless_rung(uint32_t rings, std::chrono::milliseconds at_most);

  std::atomic<uint32_t> rings_{0};
  std::atomic<int32_t> sleepers_{0};
};

void relax();  // tells the core that this is a waiting loop
void let_others_run();

// Waits until done() holds. While asleep, `meanwhile` is called now and then; it throws if waiting has become
// pointless.
template <class Done, class Meanwhile>
void wait_for(Patience patience, Bell& bell, Done&& done, Meanwhile&& meanwhile) {
  for (int i = 0; i < patience.looks; ++i, relax())
    if (done()) return;
  for (int i = 0; i < patience.yields; ++i, let_others_run())
    if (done()) return;
  for (;; meanwhile()) {
    bell.sleep(std::chrono::milliseconds(20), done);
    if (done()) return;
  }
}

}  // namespace weft
