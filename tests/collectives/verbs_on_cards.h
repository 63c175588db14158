// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every verb on card memory against the same verb on the host, bit by bit, for any transport.
#include "tests/kernels/cuda_checks.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/communicator.h"

namespace weft {

// Different on every rank; floats or small integers.
inline Tensor mine(const Communicator& comm, const Shape& shape, DType type = DType::f32) {
  return Tensor::uniform(shape, {17, static_cast<uint64_t>(comm.rank().value)}, 0, 9).to(type);
}

using CardVerb = std::function<Tensor(Communicator&, const Tensor&)>;

inline void same_on_card(Communicator& comm, const char* name, const Tensor& x, const CardVerb& verb) {
  const Tensor y = verb(comm, x.to(Device::cuda));
  require(y.device() == Device::cuda, name, ": the result is not on the card");
  require(have_same_bits(y.to(Device::cpu), verb(comm, x)), name, " of ", x.dtype(), " ", x.shape(),
          ": card and host differ on rank ", comm.rank());
}

inline Rows uneven(int ranks) {  // 0, 3, 6, ...
  Rows rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(3 * r);
  return rows;
}

inline void reductions_have_the_hosts_bits(Communicator& comm, int64_t max_rows) {
  for (const DType type : all_types)
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{7}, max_rows}) {
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
}

inline void moves_have_the_hosts_bits(Communicator& comm, int64_t most) {
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
  const Tensor large = mine(comm, {most});
  same_on_card(comm, "all_gather", large, [](auto& c, auto& t) { return c.all_gather(t); });
  same_on_card(comm, "all_reduce", large, [](auto& c, auto& t) { return c.all_reduce(t); });
}

}  // namespace weft
