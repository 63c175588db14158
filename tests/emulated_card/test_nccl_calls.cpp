// SPDX-License-Identifier: Apache-2.0
// What Weft asks of NCCL for its collectives on cards, and when a started one is ready.
#include <atomic>
#include <cmath>

#include "tests/emulated_card/communicator.h"
#include "tests/emulated_card/stream.h"
#include "tests/support/on_cards.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/collectives/unfinished.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;
using namespace std::chrono_literals;

namespace {

[[maybe_unused]] const int all_cards = emulated::visible_cards = emulated::cards;

// How many operations of each kind all ranks together ask for.
struct Asked {
  int64_t all_gather = 0, reduce_scatter = 0, message = 0, others = 0;
  bool operator==(const Asked&) const = default;
};
Asked so_far() {
  using emulated::asked_so_far, emulated::Verb;
  return {asked_so_far(Verb::all_gather), asked_so_far(Verb::reduce_scatter), asked_so_far(Verb::message),
          asked_so_far(Verb::broadcast) + asked_so_far(Verb::all_reduce)};
}
Asked since(const Asked& before) {
  const Asked now = so_far();
  return {now.all_gather - before.all_gather, now.reduce_scatter - before.reduce_scatter, now.message - before.message,
          now.others - before.others};
}

// Calls body(comm) on ranks with a card each. It must ask for exactly this.
void on_cards(int ranks, const Asked& expected, const std::function<void(Communicator&)>& body,
              Reductions reductions = Reductions::ordered) {
  INFO(ranks << " ranks");
  const Asked before = so_far();
  CHECK_NOTHROW(on_ranks_with_cards(ranks, [&](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group), 10s), reductions);
    body(comm);
  }));
  const Asked asked = since(before);
  INFO(asked.all_gather << " all-gathers, " << asked.reduce_scatter << " reduce-scatters, " << asked.message
                        << " sends and receives, " << asked.others << " others");
  CHECK(asked == expected);
}

Rows uneven_rows(int ranks) {  // 0, 3, 6, ...
  Rows rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(3 * r);
  return rows;
}

// The sends and receives if every rank with rows sends to all others.
int64_t messages_of(const Rows& rows) {
  const int64_t senders = std::count_if(rows.begin(), rows.end(), [](int64_t count) { return count > 0; });
  return 2 * senders * static_cast<int64_t>(rows.size() - 1);
}

// Equal up to rounding. All are sums or products of a few terms from 1 to 9.
void expect_near(const Tensor& actual, const Tensor& expected) {
  const std::vector<double> a = actual.values(), b = expected.values();
  require(a.size() == b.size(), a.size(), " elements, not ", b.size());
  const double rounding = actual.dtype() == DType::bf16 ? 1e-2 : 1e-5;
  for (size_t i = 0; i < a.size(); ++i)
    require(std::abs(a[i] - b[i]) <= rounding * std::abs(b[i]), "element ", i, " is ", a[i], ", not ", b[i]);
}

bool is_ready_soon(const Pending& pending) {
  const auto until = std::chrono::steady_clock::now() + 5s;
  while (!pending.ready())
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}
void wait_until_ready(const Pending& pending) { require(is_ready_soon(pending), "ready: still false"); }

// The first rank starts; the others wait for its barrier of `apart` before they do.
Pending start_after_first(Communicator& comm, Communicator& apart, const Tensor& x) {
  if (number(comm) > 0) apart.barrier();
  return comm.start(AllGather{}, x);
}

// Work of this rank's card that does not end before this does.
class Blocked {
 public:
  Blocked() {
    static_cast<emulated::Stream*>(backend(Device::cuda).queue())
        ->enqueue([over = over_] { over->wait(false); }, emulated::no_card);
  }
  Blocked(const Blocked&) = delete;
  ~Blocked() {
    *over_ = true;
    over_->notify_all();
  }

 private:
  const std::shared_ptr<std::atomic<bool>> over_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace

TEST_CASE("cards gather equal blocks by ncclAllGather and unequal ones by messages, as a whole or started") {
  const int n = GENERATE(1, 2, 3, 5);
  on_cards(n, {.all_gather = 3 * n}, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {4, 3}), all = comm.all_gather(x);
    const Rows equal(static_cast<size_t>(comm.size()), 4);
    expect_same_bits(comm.all_gather(x.to(Device::cuda)).to(Device::cpu), all);
    expect_same_bits(comm.all_gather_v(x.to(Device::cuda), equal).to(Device::cpu), all);
    expect_same_bits(comm.start(AllGather{}, x.to(Device::cuda)).wait().to(Device::cpu), all);
  });
  const Rows rows = uneven_rows(n);
  on_cards(n, {.message = 2 * messages_of(rows)}, [&](Communicator& comm) {
    const Tensor x = data_of(number(comm), {rows_of_rank(rows, number(comm)), 3}), all = comm.all_gather_v(x, rows);
    expect_same_bits(comm.all_gather_v(x.to(Device::cuda), rows).to(Device::cpu), all);
    expect_same_bits(comm.start(AllGather{rows}, x.to(Device::cuda)).wait().to(Device::cpu), all);
  });
  on_cards(n, {}, [](Communicator& comm) {  // nothing at all
    const Tensor x({0, 3}, DType::f32, Device::cuda);
    require(comm.all_gather(x).shape() == Shape{0, 3}, "no rows become some");
    require(comm.start(AllGather{}, x).wait().shape() == Shape{0, 3}, "no rows become some");
  });
}

TEST_CASE("a fast reduce_scatter of equal shares is NCCL's own, for every type and operation that it does as Weft") {
  const int n = GENERATE(1, 2, 3, 5);
  const auto each = [](const std::function<void(DType, ReduceOp)>& body) {
    for (const DType type : {DType::f32, DType::f64, DType::bf16, DType::i64})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::product, ReduceOp::mean})
        if (op != ReduceOp::mean || is_floating(type)) body(type, op);
  };
  int64_t count = 0;
  each([&](DType, ReduceOp) { count += 2 * n; });
  on_cards(
      n, {.reduce_scatter = count},
      [&](Communicator& comm) {
        const Rows equal(static_cast<size_t>(comm.size()), 4);
        each([&](DType type, ReduceOp op) {
          const Tensor x = Tensor::uniform({4 * n, 5}, {17, static_cast<uint64_t>(number(comm))}, 1, 9).to(type);
          const Tensor expected = comm.reduce_scatter(x, op);
          expect_near(comm.reduce_scatter(x.to(Device::cuda), op), expected);
          expect_near(comm.reduce_scatter_v(x.to(Device::cuda), equal, op), expected);
        });
        const Tensor nothing({0, 3}, DType::f32, Device::cuda);
        require(comm.reduce_scatter(nothing).shape() == Shape{0, 3}, "no rows become some");
      },
      Reductions::fast);
}

TEST_CASE(
    "a reduce_scatter in a fixed order, of unequal shares or of an extreme has the bits of the host, by messages") {
  const int n = GENERATE(2, 3, 5);
  const int64_t messages = 2 * n * (n - 1);
  on_cards(n, {.message = messages}, [n](Communicator& comm) {
    const Tensor x = data_of(number(comm), {4 * n, 3}, 0, DType::f32);
    expect_same_bits(comm.reduce_scatter(x.to(Device::cuda)).to(Device::cpu), comm.reduce_scatter(x));
  });
  const Rows rows = uneven_rows(n);
  on_cards(
      n, {.message = messages + messages_of(rows)},
      [&](Communicator& comm) {
        const Tensor x = data_of(number(comm), {4 * n, 3}, 0, DType::f32);
        const Tensor uneven = data_of(number(comm), {total_rows(rows), 3}, 0, DType::f32);
        const ReduceOp op = ReduceOp::maximum;
        expect_same_bits(comm.reduce_scatter(x.to(Device::cuda), op).to(Device::cpu), comm.reduce_scatter(x, op));
        expect_same_bits(comm.reduce_scatter_v(uneven.to(Device::cuda), rows).to(Device::cpu),
                         comm.reduce_scatter_v(uneven, rows));
      },
      Reductions::fast);
}

TEST_CASE("what is started on cards becomes ready without being waited for") {
  const int n = GENERATE(1, 2, 3, 5);
  on_cards(n, {.all_gather = n, .message = 2 * n * (n - 1)}, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {4, 3}), terms = data_of(number(comm), {2 * comm.size(), 3}, 1);
    Pending gathered = comm.start(AllGather{}, x.to(Device::cuda));
    Pending scattered = comm.start(ReduceScatter{}, terms.to(Device::cuda));
    wait_until_ready(scattered);
    require(gathered.ready(), "what was started first is not ready");
    expect_same_bits(scattered.wait().to(Device::cpu), comm.reduce_scatter(terms));
    expect_same_bits(gathered.wait().to(Device::cpu), comm.all_gather(x));
  });
}

TEST_CASE("what is started on cards is not ready while a peer's card has not come to it") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, {.all_gather = 2 * n}, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {4, 3}).to(Device::cuda);
    const Tensor all = comm.all_gather(x).to(Device::cpu);
    auto blocked = number(comm) == comm.size() - 1 ? std::make_unique<Blocked>() : nullptr;
    Pending gathered = comm.start(AllGather{}, x);
    for (int i = 0; i < 1000; ++i) require(!gathered.ready(), "ready before a peer's card");
    comm.barrier();
    blocked = nullptr;
    wait_until_ready(gathered);
    expect_same_bits(gathered.wait().to(Device::cpu), all);
  });
}

TEST_CASE("what is started on cards does not wait for what a rank computes before others have started it") {
  const int n = GENERATE(2, 3, 5);
  on_cards(n, {.all_gather = 2 * n}, [](Communicator& comm) {
    const auto apart = comm.duplicate();
    const Tensor x = data_of(number(comm), {4, 3}).to(Device::cuda);
    const Tensor all = comm.all_gather(x).to(Device::cpu);
    const bool first = number(comm) == 0;
    Pending gathered = start_after_first(comm, *apart, x);
    auto blocked = std::make_unique<Blocked>();
    if (first) apart->barrier();
    const bool ready = is_ready_soon(gathered);
    apart->barrier();
    blocked = nullptr;
    require(ready, "it waits for what its rank computes");
    expect_same_bits(gathered.wait().to(Device::cpu), all);
  });
}

TEST_CASE("a rank goes on with what it has started on its card while it waits for the card") {
  const int n = GENERATE(2, 3, 5);
  std::unique_ptr<Blocked> blocked;
  std::atomic<int> done = 0;
  on_cards(n, {.all_gather = 2 * n}, [&](Communicator& comm) {
    const auto apart = comm.duplicate();
    const Tensor x = data_of(number(comm), {4, 3}).to(Device::cuda);
    const Tensor all = comm.all_gather(x).to(Device::cpu);
    const bool first = number(comm) == 0;
    Pending gathered = start_after_first(comm, *apart, x);
    if (first) {
      blocked = std::make_unique<Blocked>();
      apart->barrier();
      x.values();
    } else {
      const bool ready = is_ready_soon(gathered);
      if (++done == comm.size() - 1) blocked = nullptr;
      require(ready, "the first rank does nothing while it waits for its card");
    }
    expect_same_bits(gathered.wait().to(Device::cpu), all);
  });
}

TEST_CASE("a card is waited for also when a group over cards is gone with its job") {
  struct OfAJob : ForwardingTransport {
    using ForwardingTransport::ForwardingTransport;
    std::shared_ptr<Unfinished> unfinished() override { return of_job; }
    std::shared_ptr<Unfinished> of_job = std::make_shared<Unfinished>();
  };
  CHECK_NOTHROW(on_ranks_with_cards(1, [](std::unique_ptr<Transport> group) {
    connect_nccl(std::make_unique<OfAJob>(std::move(group)), 10s);
    const Tensor x = data_of(0, {4, 3});
    expect_same_bits(x.to(Device::cuda).to(Device::cpu), x);
  }));
}
