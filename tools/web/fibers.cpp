// SPDX-License-Identifier: Apache-2.0
// Ranks as fibers of one thread: a page that a browser opens from a file gets no memory that threads share. A fiber
// runs until it waits for another rank. If all that are left wait, none can ever go on.
#include <emscripten/fiber.h>

#include <deque>
#include <exception>
#include <map>
#include <vector>

#include "weft/collectives/run_ranks.h"
#include "weft/collectives/unfinished.h"

namespace weft {
namespace {

constexpr size_t stack_bytes = size_t{1} << 18;
struct alignas(16) Stack {
  char bytes[stack_bytes];
};

struct Message {
  Call call;
  std::vector<std::byte> bytes;
};

class Ranks {
 public:
  using Body = std::function<void(std::unique_ptr<Transport>)>;

  Ranks(int count, const Body& body) : body_(body), ranks_(static_cast<size_t>(count)) {
    emscripten_fiber_init_from_current_context(&caller_, caller_stack_.bytes, stack_bytes);
    for (Rank& rank : ranks_) {
      rank.all = this;
      rank.stacks = std::make_unique<Stack[]>(2);
      emscripten_fiber_init(&rank.fiber, begin, &rank, rank.stacks[0].bytes, stack_bytes, rank.stacks[1].bytes,
                            stack_bytes);
    }
  }

  void run() {
    for (uint64_t before; std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.ended; });) {
      before = progress_;
      for (current_ = 0; current_ < ranks_.size(); ++current_)
        if (!ranks_[current_].ended) emscripten_fiber_swap(&caller_, &ranks_[current_].fiber);
      if (before == progress_ && !failure_)
        fail(Fault(exit_codes::mismatch, "these ranks wait for each other" + doing()));
    }
    if (failure_) std::rethrow_exception(failure_);
  }

  int size() const { return static_cast<int>(ranks_.size()); }

  // Returns when all ranks have shown their calls and bytes, or have come here again.
  void meet(int me, const Call& call, Transport::Bytes bytes) {
    Rank& mine = ranks_[static_cast<size_t>(me)];
    mine.call = call;
    mine.shown = bytes;
    const uint64_t meeting = meetings_;
    if (++here_ == ranks_.size()) here_ = 0, ++meetings_, ++progress_;
    while (meetings_ == meeting) wait();
  }
  void compare(int me) {
    for (const Rank& rank : ranks_)
      if (!rank.call.matches(ranks_[static_cast<size_t>(me)].call))
        throw Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group are in different calls" + doing());
  }
  std::vector<const std::byte*> shown() const {
    std::vector<const std::byte*> peers;
    for (const Rank& rank : ranks_) peers.push_back(rank.shown.data());
    return peers;
  }

  std::deque<Message>& messages(int from, int to) { return messages_[{from, to}]; }
  void note_progress() { ++progress_; }
  void wait() {
    emscripten_fiber_swap(&ranks_[current_].fiber, &caller_);
    if (failure_) throw Fault(exit_codes::peer_died, "another rank failed first");
  }

 private:
  struct Rank {
    Ranks* all;
    emscripten_fiber_t fiber;
    std::unique_ptr<Stack[]> stacks;  // of the program, and of what emscripten saves
    Call call;                        // the last one
    Transport::Bytes shown;
    bool ended = false;
  };

  static void begin(void* argument) {
    Rank& rank = *static_cast<Rank*>(argument);
    rank.all->run(rank);
    for (;;) emscripten_fiber_swap(&rank.fiber, &rank.all->caller_);
  }
  void run(Rank& rank);
  void fail(const Fault& fault) {
    if (!failure_) failure_ = std::make_exception_ptr(fault);
  }
  std::string doing() const {
    std::string calls;
    for (size_t r = 0; r < ranks_.size(); ++r)
      calls += "\n  rank " + text(static_cast<int>(r)) +
               (ranks_[r].ended ? " has ended" : " is in " + ranks_[r].call.text());
    return calls;
  }

  const Body& body_;
  std::vector<Rank> ranks_;
  emscripten_fiber_t caller_;
  Stack caller_stack_;
  size_t current_ = 0, here_ = 0;
  uint64_t meetings_ = 0, progress_ = 0;
  std::map<std::pair<int, int>, std::deque<Message>> messages_;
  std::exception_ptr failure_;  // the first
};

[[noreturn]] void not_here(const char* what) { throw Error(std::string("ranks of the page have no ") + what); }

class Fibers final : public Transport {
 public:
  Fibers(Ranks& ranks, int me) : ranks_(ranks), me_(me) {}

  int rank() const override { return me_; }
  int size() const override { return ranks_.size(); }
  GlobalRank global(GroupRank rank) const override { return {rank.value}; }
  std::string description() const override { return "fibers (" + text(size()) + " ranks)"; }
  std::shared_ptr<Unfinished> unfinished() override { return unfinished_; }

  void exchange(const Call& call, Bytes mine, size_t longest, Ranges, Read read) override {
    Call numbered = call;
    numbered.sequence = calls_++;
    ranks_.meet(me_, numbered, mine);
    ranks_.compare(me_);
    if (longest > 0) {
      const std::vector<const std::byte*> peers = ranks_.shown();
      read({0, longest, peers});
    }
    ranks_.meet(me_, numbered, mine);
  }

  void send(Call call, GroupRank to, Bytes bytes) override {
    ranks_.messages(me_, to.value).push_back({call, {bytes.begin(), bytes.end()}});
    ranks_.note_progress();
  }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    auto& messages = ranks_.messages(from.value, me_);
    while (messages.empty()) ranks_.wait();
    const Message message = std::move(messages.front());
    messages.pop_front();
    ranks_.note_progress();
    if (!message.call.same_message(call) || message.bytes.size() != bytes.size())
      throw wrong_message(message.call, global(from), call, {me_});
    std::copy(message.bytes.begin(), message.bytes.end(), bytes.begin());
    return message.call;
  }

  void finalize(Site site) override {
    exchange(describe(Verb::finalize, site), {}, 0, {}, [](const Part&) {});
  }
  std::unique_ptr<Request> start(const Call&, Tensor, size_t, Ranges) override {
    not_here("collectives in two halves");
  }
  std::unique_ptr<Transport> split(int, int, Site) override { not_here("groups"); }
  StorageHandle allocate_shown(size_t) override { not_here("memory that others see"); }
  bool shows_device_memory() const override { return false; }
  bool keeps_stream_order() const override { return true; }

 private:
  Ranks& ranks_;
  const int me_;
  uint64_t calls_ = 0;
  std::shared_ptr<Unfinished> unfinished_ = std::make_shared<Unfinished>();
};

void Ranks::run(Rank& rank) try {
  const int me = static_cast<int>(&rank - ranks_.data());
  Fibers transport(*this, me);
  body_(std::make_unique<Fibers>(*this, me));
  transport.finalize(Site::here());
  rank.ended = true;
  ++progress_;
} catch (const std::exception& error) {
  if (!failure_) failure_ = std::current_exception();
  rank.ended = true;
  ++progress_;
}

}  // namespace

std::chrono::milliseconds default_deadline() { return std::chrono::minutes(1); }

void run_ranks(int ranks, const std::function<void(std::unique_ptr<Transport>)>& body, std::chrono::milliseconds,
               const Stuck&, int) {
  require(ranks > 0, "run_ranks: ", ranks, " ranks");
  Ranks(ranks, body).run();
}

}  // namespace weft
