// SPDX-License-Identifier: Apache-2.0
// Mistakes of other libraries around collectives: walks, hooks, accumulation, empty ranks, order and bits; see
// test_regressions.cpp.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using Catch::Contains;

namespace test_regressions_walks {

// A model with collectives between its layers, two losses that share a trunk, and this rank's data.
struct Model {
  Communicator& comm;
  Parameter first{"first", data_of(0, {3, 4}, 1)}, second{"second", data_of(0, {4, 2}, 2)},
      unused{"unused", data_of(0, {3})};
  const Parameter* const trained[2] = {&first, &second};

  explicit Model(Communicator& comm) : comm(comm) {}

  Var trunk(Tape& tape, bool checkpointed, int batch = 0) const {
    tape.watch(unused);
    const auto layers = [this](std::span<const Var> x) {
      const Var hidden = tanh(matmul(x[0], x[0].tape()->watch(first)));
      return hidden - as_varying(all_reduce(hidden, comm, ReduceOp::mean), comm);
    };
    const Var x = tape.constant(data_of(number(comm), {2, 3}, 3 + batch));
    return checkpointed ? checkpoint(layers, {x}) : layers(std::vector{x});
  }
  Var gathered_loss(Tape& tape, const Var& h) const {
    const Var all = all_gather(matmul(h, tape.watch(second)), comm);
    return sum(square(all) * tape.constant(data_of(number(comm), all.shape(), 8)));
  }
  Var reduced_loss(Tape& tape, const Var& h) const {
    return all_reduce(sum(square(h) * tape.constant(data_of(number(comm), h.shape(), 9))), comm);
  }
  Var loss(Tape& tape, bool checkpointed = false, int batch = 0) const {
    const Var h = trunk(tape, checkpointed, batch);
    return gathered_loss(tape, h) + as_varying(reduced_loss(tape, h), comm);
  }
};

// PyTorch #24005 and #121594, Transformers #23018: a parameter was ready twice with checkpoints. PyTorch #180666,
// musubi-tuner #679, picotron #39, TorchRec #4268: hooks ran too early, with wrong arguments, or never.
TEST_CASE("a hook fires once per backward and parameter, after its last contribution, with collectives and checkpoints",
          "[r27][r31]") {
  on_ranks([](Communicator& comm) {
    const Model model(comm);
    for (const bool checkpointed : {false, true}) {
      Gradients grads;
      std::string fired;
      Tensor seen;
      grads.after_accumulate([&](const Parameter& p, const Tensor& sum) {
        fired += p.name + " ";
        seen = &p == &model.first ? sum : seen;
      });
      Tape tape;
      const Var loss = model.loss(tape, checkpointed);
      tape.gradient(loss, {tape.watch(model.second)});
      expect(fired.empty(), "a query fired hooks: " + fired);
      expect(!grads.has(model.second), "a query accumulated");
      tape.backward(loss, grads, Keep::tape);
      expect(fired == "second first ", "fired: " + fired);
      expect_same_bits(seen, grads[model.first]);
      tape.backward(loss, grads);
      expect(fired == "second first second first ", "fired: " + fired);
      expect(!grads.has(model.unused), "what takes no part gets no gradient");
    }
  });
}

// PyTorch #47562, #63812, #63929 and #109191: gradients by autograd.grad, create_graph or checkpoints were wrong or not
// reduced.
TEST_CASE("backward, queries, recorded queries and checkpoints give the same gradients", "[r28]") {
  on_ranks([](Communicator& comm) {
    const Model model(comm);
    Gradients plain;
    Tape first;
    first.backward(model.loss(first), plain);
    for (const bool checkpointed : {false, true}) {
      Tape tape;
      Gradients grads;
      const Var loss = model.loss(tape, checkpointed);
      tape.backward(loss, grads, Keep::tape);
      for (const Graph graph : {Graph::none, Graph::create}) {
        const auto queried = tape.gradient(loss, {tape.watch(model.first), tape.watch(model.second)}, graph);
        for (size_t i = 0; i < queried.size(); ++i) expect_close(queried[i], plain[*model.trained[i]]);
      }
      for (const Parameter* p : model.trained) expect_close(grads[*p], plain[*p]);
    }
  });
}

// PyTorch #143580: two backward passes of one forward failed.
TEST_CASE("two backward passes over one forward add up, in whatever order ranks walk the losses", "[r29]") {
  on_ranks([](Communicator& comm) {
    const Model model(comm);
    for (const bool checkpointed : {false, true}) {
      Gradients together, apart, twice;
      Tape one, tape;
      one.backward(model.loss(one, checkpointed), together, Keep::tape);
      const Var h = model.trunk(tape, checkpointed);
      const Var gathered = model.gathered_loss(tape, h), reduced = as_varying(model.reduced_loss(tape, h), comm);
      tape.backward(number(comm) == 0 ? gathered : reduced, apart, Keep::tape);
      tape.backward(number(comm) == 0 ? reduced : gathered, apart, Keep::tape);
      for (const Parameter* p : model.trained) expect_close(comm.all_reduce(apart[*p]), comm.all_reduce(together[*p]));
      for (const Keep keep : {Keep::tape, Keep::nothing}) tape.backward(reduced, twice, keep);
      Tape again;
      Gradients once;
      again.backward(as_varying(model.reduced_loss(again, model.trunk(again, false)), comm), once);
      expect_close(twice[model.first], 2 * Var(once[model.first]));
    }
  });
}

// FairScale #513 and #784, PyTorch #65194, #73535, #125484, #155903 and #196996, ColossalAI #247, DeepSpeed #545:
// accumulation over several passes.
TEST_CASE("micro-batches accumulate gradients that are reduced once", "[r32]") {
  on_ranks([](Communicator& comm) {
    const Model model(comm);
    Gradients parts, whole;
    Tape one;
    for (int batch = 0; batch < 3; ++batch) {
      Tape tape;
      tape.backward(model.loss(tape, batch == 1, batch), parts);
    }
    one.backward(total(0, 3, [&](int batch) { return model.loss(one, false, batch); }), whole);
    for (const Parameter* p : model.trained) expect_close(parts[*p], whole[*p]);
  });
}

// PyTorch #79171, #97030, #72434 and #170667: parameters that only some ranks use.
TEST_CASE("a parameter that only some ranks use has no gradient on the others, and no rank blocks", "[r33]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm);
    const Parameter before("before", data_of(0, {2, 3})), after("after", data_of(0, {2, 3}, 1));
    const auto weight = [](int r) { return Var(data_of(r, {2, 3}, 2)); };
    Tape tape;
    const Var x = me == 0 ? as_varying(tape.watch(before), comm) : tape.constant(data_of(me, {2, 3}));
    const Var y = all_reduce(x, comm);
    const Var used = me == 0 ? y * tape.watch(after) : y;
    Gradients grads;
    tape.backward(sum(used * tape.constant(weight(me).value())), grads);
    expect(grads.has(before) == (me == 0) && grads.has(after) == (me == 0), "only rank 0 uses the parameters");
    if (me != 0) return;
    const Var others = total(comm, [&](int r) { return r == 0 ? weight(0) * after.value : weight(r); });
    expect_close(grads[before], others);
  });
}

// PyTorch #140563 and #20355, NetKet #654 and #655, Horovod #2420 and #2640, mpi4jax #2, #176 and #229, distdl #87, MLX
// #1849, #4236 and #4475, Open MPI #9619: hangs where ranks are uneven or empty.
TEST_CASE("collectives of uneven counts work if some or all ranks are empty", "[r34][r36]") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), n = comm.size();
    const auto seed = [](int r) { return Var(data_of(r, {2, 3}, 1)); };
    for (int owner = 0; owner <= n; ++owner) {  // n: no rank
      const int64_t all = owner < n ? 2 : 0, mine = owner == me ? 2 : 0;
      Rows rows(static_cast<size_t>(n), 0);
      if (owner < n) rows[static_cast<size_t>(owner)] = 2;
      const Tensor nothing = Tensor::zeros({0, 3}, DType::f64);
      const auto only = [&](bool here, const Var& x) { return here ? x : Var(nothing); };
      const auto check = [&](const Var& x, const Var& y, const Var& value, const Var& gradient) {
        expect_close(y, value);
        expect_close(x.tape()->gradient(y, only(y.size() > 0, seed(me)), {x})[0], gradient);
      };
      Tape tape;
      const Var some = tape.watch(data_of(me, {mine, 3})), full = tape.watch(data_of(me, {all, 3}));
      const Var theirs = only(all > 0, data_of(owner, {2, 3}));
      const auto value = [](int r) { return Var(data_of(r, {2, 3})); };
      check(some, all_gather_v(some, rows, comm), theirs, only(mine > 0, total(comm, seed)));
      check(full, reduce_scatter_v(full, rows, comm), only(mine > 0, total(comm, value)), only(all > 0, seed(owner)));
      for (int root = 0; root < n; ++root) {
        check(some, gather_v(some, rows, {root}, comm), only(me == root, theirs), only(mine > 0, seed(root)));
        const Var sent = me == root ? (all > 0 ? seed(owner) : Var(nothing)) : Var(Tensor::zeros({all, 3}, DType::f64));
        check(full, scatter_v(full, rows, {root}, comm), only(mine > 0, value(root)), sent);
        Counts counts(static_cast<size_t>(n), Rows(static_cast<size_t>(n), 0));
        if (owner < n) counts[static_cast<size_t>(owner)][static_cast<size_t>(root)] = 2;
        check(some, all_to_all_v(some, counts, comm), only(me == root, theirs), only(mine > 0, seed(root)));
      }
    }
  });
}

// Apex #19, Paddle #30553, ONNX Runtime #6848, PyTorch #75373, TorchRec #4149: the order of collectives differed
// between ranks.
TEST_CASE("collectives in a different order are an error that names both calls and their lines", "[r35]") {
  const auto program = [](bool backward) {
    return [=](Communicator& comm) {
      Tape tape;
      const Var x = tape.watch(data_of(number(comm), {3}));
      const bool odd = number(comm) == 2;
      const Site sites[] = {Site::here("first"), Site::here("second")};
      const Var a = all_reduce(x, comm, ReduceOp::sum, sites[odd && !backward]);
      const Var b = all_reduce(x, comm, ReduceOp::sum, sites[!odd || backward]);
      if (!(odd && backward)) tape.gradient(sum(a * b), {x});
    };
  };
  CHECK_THROWS_WITH(run_ranks(3, program(false)), Contains("collective mismatch") && Contains("'first'") &&
                                                      Contains("'second'") && Contains("test_regressions_walks.cpp:"));
  CHECK_THROWS_WITH(run_ranks(3, program(true)),
                    Contains("'second'") && Contains("rank 2") && Contains("test_regressions_walks.cpp:"));
}

// A different transport among the same ranks, which uses the defaults for what it does not forward.
using Plain = ForwardingTransport;

Tensor floats_of(int rank, int64_t size) { return data_of(rank, {size}, 5, DType::f32); }

void add_to(Tensor& sum, const Tensor& other) {
  for (int64_t i = 0; i < sum.size(); ++i) sum.mutate<float>()[i] += other.data<float>()[i];
}

// The sum over `count` ranks, which is a power of two, from rank `first` on: one half plus the other half. Ranks from
// `end` on are left out.
Tensor summed_by_halves(int first, int count, int end, int64_t size) {
  if (count == 1) return floats_of(first, size);
  Tensor sum = summed_by_halves(first, count / 2, end, size);
  if (first + count / 2 >= end) return sum;
  add_to(sum, summed_by_halves(first + count / 2, count / 2, end, size));
  return sum;
}

// The sum over the ranks up to this one: the halves before it, from the widest to the nearest, and its own term last.
Tensor scanned_to(int rank, int64_t size) {
  Tensor sum;
  for (int first = 0, half = 4; half > 0; half /= 2) {
    if (rank < first + half) continue;
    const Tensor before = summed_by_halves(first, half, rank, size);
    first == 0 ? void(sum = before) : add_to(sum, before);
    first += half;
  }
  if (rank == 0) return floats_of(0, size);
  add_to(sum, floats_of(rank, size));
  return sum;
}

void check_bits(Communicator& comm, int64_t size, const Tensor& expected) {
  const int me = number(comm), n = comm.size();
  const Tensor mine = floats_of(me, size), all = comm.all_reduce(mine);
  expect_same_bits(all, expected);
  Rows rows(static_cast<size_t>(n), size / n);
  rows.back() += size % n;
  std::swap(rows.front(), rows.back());
  expect_same_bits(comm.all_gather_v(comm.reduce_scatter_v(mine, rows), rows), all);
  for (const int64_t at : {size / 3, size / 2 + 1})  // with another division
    if (at < size) expect_same_bits(comm.all_reduce(mine.slice(at, size)), all.slice(at, size));
  expect_same_bits(comm.reduce(mine, {n - 1}), me == n - 1 ? all : Tensor::zeros({size}));
  expect_same_bits(comm.scan(mine), scanned_to(me, size));
  expect_same_bits(comm.all_reduce(mine, ReduceOp::mean), affine(all, 1.0 / n, 0).value());
  Tape tape;
  const Var x = tape.watch(mine);
  expect_same_bits(tape.gradient(all_reduce(x, comm), x, {x})[0].value(), all);
  expect_same_bits(tape.gradient(vary(all_reduce_equal(x, comm), comm), x, {x})[0].value(), all);
}

// NCCL #157, #855, #1461, #1497 and #2360, rocm-systems #11661: bits that depend on size, fusion, topology or
// algorithm.
TEST_CASE("sums have the bits of adding halves of the ranks, for any size, division, verb and transport", "[r38]") {
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const int64_t size : {int64_t{1}, int64_t{37}, int64_t{20'001}}) {
      INFO(n << " ranks, " << size << " elements");
      const Tensor expected = summed_by_halves(0, 8, n, size);
      CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { check_bits(comm, size, expected); }));
      CHECK_NOTHROW(run_ranks(n, [&](std::unique_ptr<Transport> transport) {
        Communicator comm(std::make_unique<Plain>(std::move(transport)));
        check_bits(comm, size, expected);
      }));
    }
}

}  // namespace test_regressions_walks
