// SPDX-License-Identifier: Apache-2.0
// The mistakes in the documents, as programs make them, on the lines that the documents name.
#include "tests/documents/mistakes.h"

#include <thread>

#include "weft/collectives/checks/debug_finite.h"
#include "weft/collectives/checks/scale.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::documents {
namespace {

constexpr Site at(int line, const char* name = "") { return {"train.cpp", line, name}; }

void check_scale_of_a_mean(Rank& rank) {
  Parameter encoder("encoder", Tensor::from({2}, {0.5, -1}, DType::f64)),
      temperature("temperature", Tensor::full({2}, 0.7, DType::f64));
  std::vector<Parameter*> parameters = {&encoder, &temperature};
  const auto loss = [&](Tape& tape) {
    return sum(square(tape.watch(encoder) * tape.watch(temperature))) *
           Var(tape.constant(Tensor::full({}, rank.me + 1.0, DType::f64)));
  };
  const auto mean = [&] {
    Tape tape;
    Gradients gradients;
    tape.backward(loss(tape), gradients);
    std::vector<Tensor> means;
    for (const Parameter* p : parameters) means.push_back(rank.comm.all_reduce(gradients[*p], ReduceOp::mean));
    return means;
  };
  check_scale({.loss = loss, .gradients = mean}, parameters, rank.comm);
}

}  // namespace

const std::vector<Mistake> mistakes = {
    // docs/collectives.md: what every collective has in common
    {3,
     [](Rank& r) {
       if (r.me == 1) all_gather(r.leaf({2}), r.comm, at(43));
       all_reduce(r.leaf({4}), r.comm, ReduceOp::sum, at(42));
     }},
    {2,
     [](Rank& r) { all_reduce(r.leaf({4}), r.comm, ReduceOp::sum, r.me == 0 ? at(42, "logits") : at(43, "labels")); }},
    {2,
     [](Rank& r) {
       const Var loss = all_reduce(r.leaf({}), r.comm, ReduceOp::sum, at(42));
       if (r.me == 0) r.tape.backward(loss, r.gradients);
     }},
    {2,
     [](Rank& r) {
       require(r.me != 1, "data: the file is empty");
       r.comm.barrier();
     }},
    {2,
     [](Rank& r) {
       if (r.me == 1) std::this_thread::sleep_for(std::chrono::seconds(3));  // leaves rank 0 time on a busy machine
       all_reduce(r.leaf({4}), r.comm, ReduceOp::sum, at(42));
     },
     false, std::chrono::milliseconds(100)},
    {1, [](Rank& r) { r.tape.watch(Tensor::zeros({2}, DType::i64)); }},
    {2,
     [](Rank& r) {
       declare_group(r.tape, r.comm);
       r.tape.backward(sum(r.tape.watch(Parameter("w", Tensor::zeros({2}))) * Tensor::zeros({2})), r.gradients);
     }},
    {3,
     [](Rank& r) {
       const Var x = r.leaf({1, 2});
       r.leaf({3, 2}) * Var(r.comm.all_gather(x.value()));
     }},
    {1,
     [](Rank& r) {
       const Var x = r.leaf({2});
       start(AllGather{}, x, r.comm, at(42));
       r.tape.backward(sum(x), r.gradients);
     }},
    // docs/debugging.md
    {1,
     [](Rank& r) {
       const DebugFinite debug(r.tape, r.comm);
       declare_group(r.tape, r.comm);
       const Parameter scale("scale", Tensor::full({2, 3}, 1, DType::f64));
       const Var x = log(r.tape.watch(Tensor::from({2, 3}, {1, 1, 1, 1, 0, 1}, DType::f64)));
       r.tape.backward(sum(x * r.tape.watch(scale)), r.gradients);
     }},
    // all_reduce
    {3,
     [](Rank& r) {
       all_reduce(r.leaf({r.me == 2 ? 3 : 4, 2}), r.comm, ReduceOp::sum, at(42));
     }},
    {1, [](Rank& r) { r.comm.all_reduce(Tensor::zeros({2}, DType::i64), ReduceOp::mean); }},
    {2,
     [](Rank& r) {
       all_reduce(r.leaf({4}), r.comm, r.me == 0 ? ReduceOp::minimum : ReduceOp::maximum, at(r.me == 0 ? 42 : 44));
     }},
    // reduce_scatter
    {1, [](Rank& r) { reduce_scatter(r.leaf({2}), r.comm, ReduceOp::product); }},
    {3,
     [](Rank& r) {
       reduce_scatter(r.leaf({8, 2}), r.comm);
     }},
    {3,
     [](Rank& r) {
       reduce_scatter_v(r.leaf({6, 2}), {2, 2, 3}, r.comm);
     }},
    {1, [](Rank& r) { reduce_scatter(r.leaf({2}), r.comm, ReduceOp::maximum); }},
    // all_gather
    {3,
     [](Rank& r) {
       all_gather(r.leaf({r.me + 1, 2}), r.comm, at(42));
     }},
    {1, [](Rank& r) { all_gather(r.leaf({}), r.comm); }},
    {3,
     [](Rank& r) {
       all_gather_v(r.leaf({3, 2}), {2, 2, 2}, r.comm);
     }},
    {3,
     [](Rank& r) {
       all_gather_v(r.leaf({2, 2}), {2, 2}, r.comm);
     }},
    // broadcast
    {3, [](Rank& r) { broadcast(r.leaf({4}), {r.me == 2 ? 2 : 0}, r.comm, at(42)); }},
    {3, [](Rank& r) { broadcast(r.leaf({4}), {3}, r.comm); }},
    // reduce
    {3,
     [](Rank& r) {
       const Var total = reduce(r.leaf({}), {0}, r.comm, ReduceOp::sum, at(42));
       if (r.me == 0) r.tape.backward(total, r.gradients);
     }},
    {1, [](Rank& r) { reduce(r.leaf({2}), {0}, r.comm, ReduceOp::maximum); }},
    // gather and scatter
    {3,
     [](Rank& r) {
       gather_v(r.leaf({3, 2}), {2, 2, 2}, {0}, r.comm);
     }},
    {1, [](Rank& r) { gather(r.leaf({}), {0}, r.comm); }},
    {3,
     [](Rank& r) {
       scatter(r.leaf({8, 2}), {0}, r.comm);
     }},
    {3,
     [](Rank& r) {
       scatter_v(r.leaf({6, 2}), {2, 2, 3}, {0}, r.comm);
     }},
    // all_to_all
    {3,
     [](Rank& r) {
       all_to_all(r.leaf({8, 2}), r.comm);
     }},
    {3,
     [](Rank& r) {
       all_to_all_v(r.leaf({4, 2}), {{1, 2, 2}, {1, 2, 2}, {1, 2, 2}}, r.comm);
     }},
    {3,
     [](Rank& r) {
       all_to_all_v(r.leaf({4, 2}), {{2, 2}, {2, 2}}, r.comm);
     }},
    // permute
    {3,
     [](Rank& r) {
       permute(r.leaf({2}), {0, 1}, r.comm);
     }},
    {3,
     [](Rank& r) {
       permute(r.leaf({2}), {0, 1, 3}, r.comm);
     }},
    {2,
     [](Rank& r) {
       permute(r.leaf({4}), {r.me == 0 ? -1 : 1, 0}, r.comm, at(42 + r.me));
     }},
    // send and receive
    {2,
     [](Rank& r) {
       if (r.me == 0) send(r.leaf({}), {1}, r.comm, at(42));
       if (r.me == 1) r.tape.backward(receive(r.tape, {}, DType::f32, Device::cpu, {0}, r.comm, at(43)), r.gradients);
     }},
    {2,
     [](Rank& r) {
       if (r.me == 0) send(r.leaf({4}), {1}, r.comm, at(42));
       if (r.me == 1) receive(r.tape, {5}, DType::f32, Device::cpu, {0}, r.comm, at(43));
     }},
    {2, [](Rank& r) { receive(r.tape, {4}, DType::f32, Device::cpu, {1 - r.me}, r.comm, at(42)); }},
    // scan and exscan
    {2,
     [](Rank& r) {
       if (r.me == 0) exscan(r.leaf({4}), r.comm, at(42));
       scan(r.leaf({4}), r.comm, ReduceOp::sum, at(44));
     }},
    {1, [](Rank& r) { r.comm.exscan(Tensor::zeros({2}, DType::i64), ReduceOp::maximum); }},
    // collectives composed of others
    {1, [](Rank& r) { weighted_mean(r.leaf({4}), r.leaf({2}), r.comm); }},
    {1, [](Rank& r) { weighted_mean(r.leaf({4}), r.leaf({}, DType::f64), r.comm); }},
    {2, [](Rank& r) { all_reduce_norm(r.leaf({4 + r.me}), r.comm, at(42)); }},
    // groups
    {2,
     [](Rank& r) {
       if (r.me == 0) r.comm.barrier(at(42));
     }},
    {2,
     [](Rank& r) {
       const auto first = r.comm.duplicate(), second = r.comm.duplicate();
       (r.me == 0 ? *first : *second).barrier(at(r.me == 0 ? 43 : 42));
     }},
    // docs/debugging.md
    {2,
     [](Rank& r) {
       exp(r.equal({2, 3}) * (1 + r.me));
     },
     true},
    {2,
     [](Rank& r) {
       const Parameter drifted("name", Tensor::full({2}, r.me));
       r.tape.watch(drifted);
     },
     true},
    {2, [](Rank& r) { exp(r.equal({2}) * replicated_constant(Tensor::full({2}, r.me, DType::f64))); }, true},
    {2, [](Rank& r) { with_placement(r.leaf({2}), r.comm, Placement::replicated); }, true},
    {2, [](Rank& r) { with_placement(sum(r.leaf({2})), r.comm, Placement::replicated); }, true},
    {2, [](Rank& r) { r.me == 0 ? exp(r.equal({2})) : tanh(r.equal({2})); }, true},
    {2,
     [](Rank& r) { r.tape.backward(exp(all_reduce_equal(r.leaf({2}), r.comm)), Tensor::full({2}, r.me), r.gradients); },
     true},
    {3, check_scale_of_a_mean},
};

}  // namespace weft::documents
