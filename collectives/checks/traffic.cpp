// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/traffic.h"

#include <chrono>

#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/engine/tensor/pool.h"

namespace weft {
namespace {

// Adds the time of its own life to a count.
class Stopwatch {
 public:
  explicit Stopwatch(Traffic::Count& count) : count_(count) {}
  ~Stopwatch() { count_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;

 private:
  Traffic::Count& count_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class CountedHalves final : public Transport::Request {
 public:
  CountedHalves(std::unique_ptr<Request> inner, Traffic::Count& count) : inner_(std::move(inner)), count_(count) {}
  bool ready() override { return inner_->ready(); }
  void finish(Transport::Read read) override {
    const Stopwatch stopwatch(count_);
    inner_->finish(read);
  }

  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* place, size_t bytes) { pool::give(place, bytes); }

 private:
  std::unique_ptr<Request> inner_;
  Traffic::Count& count_;
};

class CountedGroup final : public ForwardingTransport {
 public:
  CountedGroup(std::unique_ptr<Transport> inner, Traffic& traffic)
      : ForwardingTransport(std::move(inner)), traffic_(traffic) {}

  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    const Stopwatch stopwatch(count(call, mine.size(), longest));
    inner().exchange(call, mine, longest, ranges, read);
  }
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    Traffic::Count& calls = count(call, mine.bytes(), longest);
    const Stopwatch stopwatch(calls);
    return std::unique_ptr<Request>(new CountedHalves(inner().start(call, std::move(mine), longest, ranges), calls));
  }
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override {
    const Stopwatch stopwatch(count(call, mine.size(), std::max(mine.size(), result.size())));
    inner().reduce(call, mine, result, reduction);
  }
  std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                           const Reduction& reduction) override {
    Traffic::Count& calls = count(call, mine.bytes(), std::max(mine.bytes(), result.bytes()));
    const Stopwatch stopwatch(calls);
    auto started = inner().start_reduction(call, std::move(mine), std::move(result), reduction);
    return std::unique_ptr<Request>(new CountedHalves(std::move(started), calls));
  }
  bool reduces_in_any_order(const Call& call, size_t bytes) const override {
    return inner().reduces_in_any_order(call, bytes);
  }
  void send(Call call, GroupRank to, Bytes bytes) override {
    const Stopwatch stopwatch(count(call, bytes.size(), bytes.size()));
    inner().send(call, to, bytes);
  }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    const Stopwatch stopwatch(count(call, 0, bytes.size()));
    return inner().receive(call, from, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override {
    const Stopwatch stopwatch(count(describe(Verb::split, site), 0, 0));
    std::unique_ptr<Transport> group = inner().split(color, key, site);
    return group ? counted(std::move(group), traffic_) : nullptr;
  }
  StorageHandle allocate_common(size_t bytes, Site site) override {
    const Stopwatch stopwatch(count(describe(Verb::allocate_common, site), 0, 0));
    return inner().allocate_common(bytes, site);
  }

  std::string choices(bool of_leaders) const override { return inner().choices(of_leaders); }

 private:
  // `longest` is the largest size of any rank.
  Traffic::Count& count(const Call& call, size_t bytes, size_t longest) {
    Traffic::Count& count = traffic_[call.verb];
    ++count.calls;
    count.bytes += static_cast<int64_t>(bytes);
    count.small_calls += longest <= small_call;
    return count;
  }

  Traffic& traffic_;
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

std::unique_ptr<Transport> counted(std::unique_ptr<Transport> transport, Traffic& traffic) {
  return std::make_unique<CountedGroup>(std::move(transport), traffic);
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
