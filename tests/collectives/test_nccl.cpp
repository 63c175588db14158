// SPDX-License-Identifier: Apache-2.0
// NCCL on as many ranks as there are cards: every verb against the same verb on the host, bit by bit.
#include <cmath>

#include "tests/collectives/verbs_on_cards.h"
#include "tests/support/on_cards.h"

using namespace weft;

namespace {

using Body = std::function<void(Communicator&)>;

void on_cards(const Body& body, Reductions reductions = Reductions::ordered) {
  on_cards_of(1, [&](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group)), reductions);
    body(comm);
  });
}

}  // namespace

TEST_CASE("NCCL works in nested groups, and started collectives can be awaited in any order") {
  on_cards([](Communicator& comm) {
    const Tensor a = mine(comm, {1000}), b = mine(comm, {77'777}, DType::f64);
    Pending first = comm.start(AllGather{}, a.to(Device::cuda)), second = comm.start(AllGather{}, b.to(Device::cuda));
    { const Pending dropped = comm.start(AllGather{}, a.to(Device::cuda)); }
    std::vector<Tensor> after(4);  // reuse the memory that this freed
    for (Tensor& x : after) x = Tensor::full({1000 * comm.size()}, 7, DType::f32, Device::cuda);
    backend(Device::cuda).synchronize();
    const Tensor sum = comm.all_reduce(b.to(Device::cuda));
    require(second.wait().values() == comm.all_gather(b).values(), "the second differs");
    require(first.wait().values() == comm.all_gather(a).values(), "the first differs");
    require(sum.values() == comm.all_reduce(b).values(), "the sum in between differs");
    for (const Tensor& x : after)
      require(x.values() == std::vector<double>(static_cast<size_t>(x.size()), 7), "what was dropped still arrives");
    const Tensor fresh = b.slice(0, 1000);  // not what its memory held before
    const Tensor gathered = comm.start(AllGather{}, fresh.to(Device::cuda)).wait();
    require(gathered.values() == comm.all_gather(fresh).values(), "what is waited for at once differs");
    const auto part = comm.split(comm.rank().value % 2, -comm.rank().value);
    same_on_card(*part, "all_reduce in a part", a, [](auto& c, auto& t) { return c.all_reduce(t); });
    require(comm.description().find("NCCL 2.") == 0, "the description is ", comm.description());
  });
}

TEST_CASE("NCCL's own reductions agree with ours up to the order of summation, also in place") {
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
            const Tensor x = mine(comm, {123'457}, type), ordered = comm.run(Scan{op}, x);
            Tensor y = x.to(Device::cuda);
            comm.all_reduce(y, y, op);
            const Tensor whole = comm.broadcast(ordered, {comm.size() - 1});
            require(close(y, whole, type == DType::f32 ? 1e-5 : 1e-12), "NCCL's ", op, " of ", type,
                    " differs from ours");
          }
      },
      Reductions::fast);
}

TEST_CASE("repeated steps over NCCL allocate no more memory on the card") {
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
    for (int i = 0; i < 100; ++i) step();  // more than there are slots for work in flight
    comm.barrier();
    require(backend(Device::cuda).memory().system_calls == before, "memory was taken from the system");
  });
}

TEST_CASE("NCCL reduces every type in rank order, as the host does") {
  on_cards([](Communicator& comm) { reductions_have_the_hosts_bits(comm, 30'001); });
}

TEST_CASE("NCCL moves even and uneven data like the host") {
  on_cards([](Communicator& comm) { moves_have_the_hosts_bits(comm, 18'000'000); });  // several slices
}
