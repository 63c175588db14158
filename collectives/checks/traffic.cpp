// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/traffic.h"

#include <map>

#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/engine/tensor/pool.h"
#include "weft/engine/tensor/random.h"

namespace weft {
namespace {

using Event = Timeline::Event;
using Kind = Timeline::Kind;

// What is written down of a rank's calls.
struct Notes {
  Traffic& traffic;
  Timeline* timeline;  // or null
};

// One call, or one half of it, for the time of its own life.
class Noted {
 public:
  Noted(const Notes& notes, const Event& event) : notes_(notes), event_(event) { event_.begin = seconds_now(); }
  ~Noted() {
    event_.end = seconds_now();
    notes_.traffic[event_.call.verb].seconds += event_.end - event_.begin;
    if (notes_.timeline) notes_.timeline->add(event_);
  }
  Noted(const Noted&) = delete;
  const Event& event() const { return event_; }

 private:
  const Notes& notes_;
  Event event_;
};

class CountedHalves final : public Transport::Request {
 public:
  CountedHalves(std::unique_ptr<Request> inner, const Notes& notes, const Event& first)
      : inner_(std::move(inner)), notes_(notes), event_(first) {
    event_.kind = Kind::second_half;
  }
  bool ready() override { return inner_->ready(); }
  void finish(Transport::Read read) override {
    const Noted noted(notes_, event_);
    inner_->finish(read);
  }

  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* place, size_t bytes) { pool::give(place, bytes); }

 private:
  std::unique_ptr<Request> inner_;
  const Notes notes_;
  Event event_;
};

class CountedGroup final : public ForwardingTransport {
 public:
  CountedGroup(std::unique_ptr<Transport> inner, const Notes& notes, uint64_t group)
      : ForwardingTransport(std::move(inner)), notes_(notes), group_(group) {}

  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    const Noted noted(notes_, collective(Kind::whole, call, mine.size(), longest));
    inner().exchange(call, mine, longest, ranges, read);
  }
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    const Noted noted(notes_, collective(Kind::first_half, call, mine.bytes(), longest));
    return halves(inner().start(call, std::move(mine), longest, ranges), noted);
  }
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override {
    const Noted noted(notes_, collective(Kind::whole, call, mine.size(), std::max(mine.size(), result.size())));
    inner().reduce(call, mine, result, reduction);
  }
  std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                           const Reduction& reduction) override {
    const size_t longest = std::max(mine.bytes(), result.bytes());
    const Noted noted(notes_, collective(Kind::first_half, call, mine.bytes(), longest));
    return halves(inner().start_reduction(call, std::move(mine), std::move(result), reduction), noted);
  }
  bool reduces_in_any_order(const Call& call, size_t bytes) const override {
    return inner().reduces_in_any_order(call, bytes);
  }
  void send(Call call, GroupRank to, Bytes bytes) override {
    const Noted noted(notes_, message(Kind::send, call, to, bytes.size()));
    inner().send(call, to, bytes);
  }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    const Noted noted(notes_, message(Kind::receive, call, from, bytes.size()));
    return inner().receive(call, from, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override {
    const Noted noted(notes_, collective(Kind::whole, describe(Verb::split, site), 0, 0));
    std::unique_ptr<Transport> group = inner().split(color, key, site);
    if (!group) return nullptr;
    const auto number = static_cast<uint64_t>(noted.event().number);
    return std::make_unique<CountedGroup>(std::move(group), notes_,
                                          derived(group_, number, static_cast<uint64_t>(color)));
  }
  StorageHandle allocate_common(size_t bytes, Site site) override {
    const Noted noted(notes_, collective(Kind::whole, describe(Verb::allocate_common, site), 0, 0));
    return inner().allocate_common(bytes, site);
  }

  std::string choices(bool of_leaders) const override { return inner().choices(of_leaders); }

 private:
  // `longest` is the largest size of any rank.
  Event counted(Kind kind, uint64_t group, int64_t number, const Call& call, size_t bytes, size_t longest) {
    Traffic::Count& count = notes_.traffic[call.verb];
    ++count.calls;
    count.bytes += static_cast<int64_t>(bytes);
    count.small_calls += longest <= small_call;
    return {.kind = kind, .group = group, .number = number, .bytes = static_cast<int64_t>(bytes), .call = call};
  }
  // All ranks of a group make the same collectives in the same order.
  Event collective(Kind kind, const Call& call, size_t bytes, size_t longest) {
    return counted(kind, group_, collectives_++, call, bytes, longest);
  }
  // And two ranks send and receive the same messages.
  Event message(Kind kind, const Call& call, GroupRank peer, size_t bytes) {
    const auto me = static_cast<uint64_t>(rank()), other = static_cast<uint64_t>(peer.value);
    const bool sends = kind == Kind::send;
    const uint64_t pair = derived(group_, sends ? me : other, sends ? other : me);
    return counted(kind, pair, messages_[pair]++, call, sends ? bytes : 0, bytes);
  }
  std::unique_ptr<Request> halves(std::unique_ptr<Request> inner, const Noted& first) {
    return std::unique_ptr<Request>(new CountedHalves(std::move(inner), notes_, first.event()));
  }
  static uint64_t derived(uint64_t group, uint64_t a, uint64_t b) { return Random{0, group}.fork(a).fork(b).stream; }

  const Notes notes_;
  const uint64_t group_;
  int64_t collectives_ = 0;               // so far
  std::map<uint64_t, int64_t> messages_;  // so far, by the pair of ranks and its direction
};

}  // namespace

Traffic::Count& Traffic::Count::operator+=(const Count& other) {
  calls += other.calls;
  bytes += other.bytes;
  seconds += other.seconds;
  small_calls += other.small_calls;
  return *this;
}

Traffic::Count Traffic::Count::operator-(const Count& other) const {
  return {calls - other.calls, bytes - other.bytes, seconds - other.seconds, small_calls - other.small_calls};
}

Traffic::Count Traffic::total() const {
  Count sum;
  for (const Count& count : counts_) sum += count;
  return sum;
}

Traffic Traffic::since(const Traffic& before) const {
  Traffic difference;
  for (size_t v = 0; v < verbs; ++v) difference.counts_[v] = counts_[v] - before.counts_[v];
  return difference;
}

std::unique_ptr<Transport> counted(std::unique_ptr<Transport> transport, Traffic& traffic, Timeline* timeline) {
  return std::make_unique<CountedGroup>(std::move(transport), Notes{traffic, timeline}, 0);
}

std::vector<Traffic> gather_traffic(const Traffic& mine, Communicator& comm, Site site) {
  constexpr int64_t columns = 4;
  Tensor numbers({1, static_cast<int64_t>(Traffic::verbs), columns}, DType::f64);  // exact below 2^53
  double* next = numbers.mutate<double>();
  for (size_t v = 0; v < Traffic::verbs; ++v) {
    const Traffic::Count& count = mine[static_cast<Verb>(v)];
    *next++ = static_cast<double>(count.calls);
    *next++ = static_cast<double>(count.bytes);
    *next++ = count.seconds;
    *next++ = static_cast<double>(count.small_calls);
  }
  const Tensor all = comm.gather(numbers, {0}, site);
  std::vector<Traffic> ranks(static_cast<size_t>(all.shape()[0]));
  const double* number = all.data<double>();
  for (Traffic& rank : ranks)
    for (size_t v = 0; v < Traffic::verbs; ++v, number += columns)
      rank[static_cast<Verb>(v)] = {static_cast<int64_t>(number[0]), static_cast<int64_t>(number[1]), number[2],
                                    static_cast<int64_t>(number[3])};
  return ranks;
}

}  // namespace weft
