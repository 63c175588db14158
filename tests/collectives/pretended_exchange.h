// SPDX-License-Identifier: Apache-2.0
#pragma once
// An exchange between cards that are only pretended: their memory is the host's.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "tests/collectives/transport_checks.h"
#include "weft/collectives/transports/nccl/card_exchange.h"
#include "weft/collectives/unfinished.h"

namespace weft {

// Where the ranks of a group bring what they enqueue. When all have brought a piece of work, one of them does it for
// all.
struct Meeting {
  struct Part {
    std::span<const std::byte> mine;
    std::vector<Transport::Range> out;
    std::vector<size_t> counts;
    std::byte* to;
  };
  using Parts = std::vector<Part>;  // by rank
  struct Work {
    Parts parts;
    size_t brought = 0;
    std::function<void(const Parts&)> act;
  };
  std::mutex mutex;
  std::condition_variable brought;
  std::deque<Work> works;
  size_t done = 0;
};

// Host memory in place of the cards'. Enqueued work happens as late as possible: when a rank awaits it.
class Pretended : public CardExchange {
 public:
  explicit Pretended(Transport& host)
      : me_(static_cast<size_t>(host.rank())),
        ranks_(static_cast<size_t>(host.size())),
        unfinished_(host.unfinished()) {}
  Pretended(const Pretended&) = delete;
  ~Pretended() override {
    if (!meeting_) return;
    const std::lock_guard lock(meeting_->mutex);
    left_behind += posted_ - std::min(posted_, meeting_->done);
  }

  static inline std::atomic<size_t> left_behind = 0;

  Address address() override {
    static std::deque<Meeting>& meetings = *new std::deque<Meeting>;
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    const Meeting* const meeting = &meetings.emplace_back();
    Address address{};
    std::memcpy(address.data(), &meeting, sizeof meeting);
    return address;
  }
  void connect(const Call&, const Address& address) override {
    std::memcpy(&meeting_, address.data(), sizeof meeting_);
  }
  Mark mark() override { return nullptr; }

  Ticket gather(const Call&, Mark, const std::byte* mine, std::span<const size_t> counts, std::byte* all) override {
    return post({{mine, counts[me_]}, {}, {counts.begin(), counts.end()}, all}, [](const Meeting::Parts& parts) {
      for (const Meeting::Part& reader : parts) {
        std::byte* place = reader.to;
        for (size_t r = 0; r < parts.size(); place += reader.counts[r++])
          if (reader.counts[r]) std::memmove(place, parts[r].mine.data(), reader.counts[r]);
      }
    });
  }

  Ticket swap(const Call&, Mark, const std::byte* mine, std::span<const Transport::Range> out,
              std::span<const size_t> counts, std::byte* received) override {
    return post({{mine, 0}, {out.begin(), out.end()}, {counts.begin(), counts.end()}, received},
                [](const Meeting::Parts& parts) {
                  for (size_t reader = 0; reader < parts.size(); ++reader) {
                    const auto& [unused, ranges, counts, to] = parts[reader];
                    std::byte* place = to;
                    for (size_t r = 0; r < parts.size(); place += counts[r++])
                      if (counts[r]) std::memcpy(place, parts[r].mine.data() + parts[r].out[reader].first, counts[r]);
                  }
                });
  }

  Ticket reduce(const Call&, Mark, std::span<const std::byte> mine, std::span<std::byte> result) override {
    return post({mine, {}, {result.size()}, result.data()}, [](const Meeting::Parts& parts) {
      std::vector<const std::byte*> peers;
      for (const Meeting::Part& part : parts) peers.push_back(part.mine.data());
      std::vector<std::byte> whole(parts[0].mine.size());
      std::vector<int> everyone(parts.size());
      std::iota(everyone.begin(), everyone.end(), 0);
      Fold{everyone, ReduceOp::sum, DType::f32, Device::cpu, true}.write({0, whole.size(), peers}, whole.data());
      for (size_t r = 0; r < parts.size(); ++r)
        std::copy_n(
            whole.begin() + static_cast<std::ptrdiff_t>(parts[r].counts[0] < whole.size() ? r * parts[r].counts[0] : 0),
            parts[r].counts[0], parts[r].to);
    });
  }

  bool is_idle() override { return true; }
  void settle() override {}
  bool is_done(Ticket ticket) override {
    const std::lock_guard lock(meeting_->mutex);
    return ticket <= meeting_->done;
  }
  // Like a rank that waits for its card, it goes on with what is unfinished. It gives up if a rank has failed.
  void await(Ticket ticket) noexcept override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    std::unique_lock lock(meeting_->mutex);
    while (meeting_->done < ticket && std::chrono::steady_clock::now() < until) {
      Meeting::Work& next = meeting_->works[meeting_->done];
      if (next.brought == ranks_) {
        next.act(next.parts);
        ++meeting_->done;
      } else if (meeting_->brought.wait_for(lock, std::chrono::milliseconds(1)) == std::cv_status::timeout) {
        lock.unlock();
        unfinished_->go_on();
        lock.lock();
      }
    }
  }

 private:
  Ticket post(Meeting::Part part, std::function<void(const Meeting::Parts&)> act) {
    const std::lock_guard lock(meeting_->mutex);
    if (meeting_->works.size() == posted_) meeting_->works.push_back({Meeting::Parts(ranks_), 0, std::move(act)});
    Meeting::Work& work = meeting_->works[posted_];
    work.parts[me_] = std::move(part);
    if (++work.brought == ranks_) meeting_->brought.notify_all();
    return ++posted_;
  }

  const size_t me_, ranks_;
  const std::shared_ptr<Unfinished> unfinished_;
  Meeting* meeting_ = nullptr;
  size_t posted_ = 0;
};

}  // namespace weft
