// NCCL on as many ranks as there are cards, if there is one: every verb against the same verb on the host, to the bit.
#include <cmath>

#include "collectives/communicator.h"
#include "tests/cuda_checks.h"
#include "tests/on_cards.h"

using namespace weft;

namespace {

using Body = std::function<void(Communicator&)>;

void on_cards(const Body& body, Reductions reductions = Reductions::ordered) {
  on_cards_of(1, [&](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group)), reductions);
    body(comm);
  });
}

// Different on every rank; of floats or small integers.
Tensor mine(const Communicator& comm, const Shape& shape, DType type = DType::f32) {
  return Tensor::uniform(shape, {17, static_cast<uint64_t>(comm.rank().value)}, 0, 9).to(type);
}

using Verb = std::function<Tensor(Communicator&, const Tensor&)>;

void same_on_card(Communicator& comm, const char* name, const Tensor& x, const Verb& verb) {
  const Tensor y = verb(comm, x.to(Device::cuda));
  require(y.device() == Device::cuda, name, ": the result is not on the card");
  require(y.values() == verb(comm, x).values(), name, " of ", x.dtype(), " ", x.shape(),
          ": card and host differ on rank ", comm.rank());
}

Rows uneven(int ranks) {  // 0, 3, 6, ...
  Rows rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(3 * r);
  return rows;
}

}  // namespace

TEST_CASE("NCCL reduces every type in rank order, as the host does") {
  on_cards([](Communicator& comm) {
    for (const DType type : all_types)
      for (const int64_t rows : {0, 1, 7, 300'001}) {
        const Tensor x = mine(comm, {rows * comm.size(), 3}, type);
        for (const ReduceOp op :
             {ReduceOp::sum, ReduceOp::mean, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum}) {
          if (op == ReduceOp::mean && !is_floating(type)) continue;
          same_on_card(comm, "all_reduce", x, [=](auto& c, auto& t) { return c.all_reduce(t, op); });
          same_on_card(comm, "reduce_scatter", x, [=](auto& c, auto& t) { return c.reduce_scatter(t, op); });
          same_on_card(comm, "reduce", x, [=](auto& c, auto& t) { return c.reduce(t, {c.size() - 1}, op); });
        }
        same_on_card(comm, "scan", x, [](auto& c, auto& t) { return c.scan(t); });
        same_on_card(comm, "exscan", x, [](auto& c, auto& t) { return c.exscan(t); });
      }
  });
}

TEST_CASE("NCCL moves what the host moves, evenly and unevenly") {
  on_cards([](Communicator& comm) {
    const int n = comm.size();
    const Rows rows = uneven(n);
    int64_t total = 0;
    for (const int64_t r : rows) total += r;
    const GroupRank last{n - 1};
    for (const DType type : all_types) {
      const Tensor x = mine(comm, {4 * n, 5}, type);
      same_on_card(comm, "all_gather", x, [](auto& c, auto& t) { return c.all_gather(t); });
      same_on_card(comm, "gather", x, [=](auto& c, auto& t) { return c.gather(t, last); });
      same_on_card(comm, "scatter", x, [=](auto& c, auto& t) { return c.scatter(t, last); });
      same_on_card(comm, "broadcast", x, [=](auto& c, auto& t) { return c.broadcast(t, last); });
      same_on_card(comm, "all_to_all", x, [](auto& c, auto& t) { return c.all_to_all(t); });
      Sources source(static_cast<size_t>(n), 0);
      source.back() = -1;
      same_on_card(comm, "permute", x, [&](auto& c, auto& t) { return c.permute(t, source); });
      const Tensor part = mine(comm, {rows[static_cast<size_t>(comm.rank().value)], 5}, type);
      same_on_card(comm, "all_gather_v", part, [&](auto& c, auto& t) { return c.all_gather_v(t, rows); });
      same_on_card(comm, "gather_v", part, [&](auto& c, auto& t) { return c.gather_v(t, rows, last); });
      same_on_card(comm, "reduce_scatter_v", mine(comm, {total, 5}, type),
                   [&](auto& c, auto& t) { return c.reduce_scatter_v(t, rows); });
      const Tensor message = mine(comm, {1000}, type);
      same_on_card(comm, "send", message, [&](auto& c, auto& t) {
        c.send(t, {(c.rank().value + 1) % n});
        return c.receive(t.shape(), t.dtype(), t.device(), {(c.rank().value + n - 1) % n});
      });
    }
    const Tensor large = mine(comm, {30'000'000});  // several parts
    same_on_card(comm, "all_gather", large, [](auto& c, auto& t) { return c.all_gather(t); });
    same_on_card(comm, "all_reduce", large, [](auto& c, auto& t) { return c.all_reduce(t); });
  });
}

TEST_CASE("NCCL's groups of groups work, and what is started may be awaited in any order") {
  on_cards([](Communicator& comm) {
    const Tensor a = mine(comm, {1000}), b = mine(comm, {77'777}, DType::f64);
    Pending first = comm.start(AllGather{}, a.to(Device::cuda)), second = comm.start(AllGather{}, b.to(Device::cuda));
    { const Pending dropped = comm.start(AllGather{}, a.to(Device::cuda)); }
    std::vector<Tensor> after(4);  // in the memory that this gave back
    for (Tensor& x : after) x = Tensor::full({1000 * comm.size()}, 7, DType::f32, Device::cuda);
    backend(Device::cuda).synchronize();
    const Tensor sum = comm.all_reduce(b.to(Device::cuda));
    require(second.wait().values() == comm.all_gather(b).values(), "the second differs");
    require(first.wait().values() == comm.all_gather(a).values(), "the first differs");
    require(sum.values() == comm.all_reduce(b).values(), "the sum in between differs");
    for (const Tensor& x : after)
      require(x.values() == std::vector<double>(static_cast<size_t>(x.size()), 7), "what was dropped still arrives");
    const Tensor fresh = b.slice(0, 1000);  // not what its memory holds already
    const Tensor gathered = comm.start(AllGather{}, fresh.to(Device::cuda)).wait();
    require(gathered.values() == comm.all_gather(fresh).values(), "what is waited for at once differs");
    const auto part = comm.split(comm.rank().value % 2, -comm.rank().value);
    same_on_card(*part, "all_reduce in a part", a, [](auto& c, auto& t) { return c.all_reduce(t); });
    require(comm.description().find("NCCL 2.") == 0, "the description is ", comm.description());
  });
}

TEST_CASE("NCCL's own reductions agree up to the order, and in place") {
  const auto close = [](const Tensor& x, const Tensor& y, double tolerance) {
    const std::vector<double> a = x.values(), b = y.values();
    for (size_t i = 0; i < a.size(); ++i)
      if (std::abs(a[i] - b[i]) > tolerance * std::max(1.0, std::abs(b[i]))) return false;
    return true;
  };
  on_cards(
      [&](Communicator& comm) {
        for (const DType type : {DType::f32, DType::f64, DType::i64})
          for (const ReduceOp op :
               {ReduceOp::sum, ReduceOp::mean, ReduceOp::product, ReduceOp::maximum, ReduceOp::minimum}) {
            if (op == ReduceOp::mean && !is_floating(type)) continue;
            const Tensor x = mine(comm, {123'457}, type), ordered = comm.run(Scan{true, false, op}, x);
            Tensor y = x.to(Device::cuda);
            comm.all_reduce(y, y, op);
            const Tensor whole = comm.broadcast(ordered, {comm.size() - 1});
            require(close(y, whole, type == DType::f32 ? 1e-5 : 1e-12), "NCCL's ", op, " of ", type,
                    " differs from ours");
          }
      },
      Reductions::fast);
}

TEST_CASE("a step over NCCL that is repeated takes nothing more from the card's system") {
  on_cards([](Communicator& comm) {
    const Tensor x = mine(comm, {100'000}).to(Device::cuda);
    const auto step = [&] {
      Tensor y = comm.all_reduce(x);
      Pending gathered = comm.start(AllGather{}, y);
      return gathered.wait();
    };
    step();
    comm.barrier();
    const int64_t before = backend(Device::cuda).memory().system_calls;
    comm.barrier();
    for (int i = 0; i < 100; ++i) step();  // more than there are slots for work under way
    comm.barrier();
    require(backend(Device::cuda).memory().system_calls == before, "memory was taken from the system");
  });
}
