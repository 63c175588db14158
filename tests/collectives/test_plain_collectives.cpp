// SPDX-License-Identifier: Apache-2.0
// Plain collectives, on tensors, have no gradient. Their results on values that need gradients can be read, but are
// refused in the further computation unless the program calls detach().
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

using namespace weft;

namespace {

struct PlainCollective {
  const char* name;
  Tensor (*call)(const Tensor& x, Communicator& comm);  // of (ranks, 3)
};

Rows of_each(const Communicator& comm, int64_t rows) { return Rows(static_cast<size_t>(comm.size()), rows); }
Sources ring(const Communicator& comm) {
  Sources sources;
  for (int r = 0; r < comm.size(); ++r) sources.push_back((r + 1) % comm.size());
  return sources;
}

const PlainCollective plain_collectives[] = {
    {"all_reduce", [](const Tensor& x, Communicator& comm) { return comm.all_reduce(x); }},
    {"all_reduce", [](const Tensor& x, Communicator& comm) { return comm.all_reduce(x, ReduceOp::maximum); }},
    {"all_reduce",
     [](const Tensor& x, Communicator& comm) {
       Tensor y = Tensor::like(x);
       comm.all_reduce(x, y, ReduceOp::mean);
       return y;
     }},
    {"all_reduce",
     [](const Tensor& x, Communicator& comm) {
       Tensor y = x.clone();
       comm.all_reduce(y, y);
       return y;
     }},
    {"reduce_scatter", [](const Tensor& x, Communicator& comm) { return comm.reduce_scatter(x); }},
    {"reduce_scatter_v",
     [](const Tensor& x, Communicator& comm) { return comm.reduce_scatter_v(x, of_each(comm, 1)); }},
    {"reduce", [](const Tensor& x, Communicator& comm) { return comm.reduce(x, {0}); }},
    {"scan", [](const Tensor& x, Communicator& comm) { return comm.scan(x); }},
    {"exscan", [](const Tensor& x, Communicator& comm) { return comm.exscan(x); }},
    {"all_gather", [](const Tensor& x, Communicator& comm) { return comm.all_gather(x); }},
    {"all_gather_v",
     [](const Tensor& x, Communicator& comm) { return comm.all_gather_v(x, of_each(comm, comm.size())); }},
    {"gather", [](const Tensor& x, Communicator& comm) { return comm.gather(x, {comm.size() - 1}); }},
    {"gather_v", [](const Tensor& x, Communicator& comm) { return comm.gather_v(x, of_each(comm, comm.size()), {0}); }},
    {"scatter", [](const Tensor& x, Communicator& comm) { return comm.scatter(x, {0}); }},
    {"scatter_v", [](const Tensor& x, Communicator& comm) { return comm.scatter_v(x, of_each(comm, 1), {0}); }},
    {"broadcast", [](const Tensor& x, Communicator& comm) { return comm.broadcast(x, {0}); }},
    {"all_to_all", [](const Tensor& x, Communicator& comm) { return comm.all_to_all(x); }},
    {"all_to_all_v",
     [](const Tensor& x, Communicator& comm) {
       return comm.all_to_all_v(x, Counts(static_cast<size_t>(comm.size()), of_each(comm, 1)));
     }},
    {"permute", [](const Tensor& x, Communicator& comm) { return comm.permute(x, ring(comm)); }},
    {"all_gather", [](const Tensor& x, Communicator& comm) { return comm.start(AllGather{}, x).wait(); }},
    {"reduce_scatter", [](const Tensor& x, Communicator& comm) { return comm.start(ReduceScatter{}, x).wait(); }},
    {"broadcast", [](const Tensor& x, Communicator& comm) { return comm.start(Broadcast{{0}}, x).wait(); }},
    {"all_reduce", [](const Tensor& x, Communicator& comm) { return comm.start(AllReduce{}, x.clone()).wait(); }},
};

// On a bare tape, on one that knows the group, and under debugging.
template <class F> void on_tapes(F body) {
  on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
    for (const int kind : {0, 1, 2}) {
      Tape tape;
      std::unique_ptr<DebugRanks> debug;
      if (kind == 1) declare_group(tape, comm);
      if (kind == 2) debug = std::make_unique<DebugRanks>(tape, comm);
      body(tape, comm);
    }
  });
}

Var features(Tape& tape, const Parameter& w, Communicator& comm) {
  return tape.watch(w) * tape.constant(data_of(number(comm), {comm.size(), 3}, 1));
}

// Uses y in a computation that has gradients.
void expect_recorded(const Var& z, const Var& y) { expect((z * y).tracked(), "recorded"); }

std::string advice(const std::string& collective) {
  return "is what comm." + collective +
         " made of values that gradients flow to, and no rank would get them back; use the differentiable " +
         collective + " of collectives/collectives.h, or detach(x).value() where none are wanted";
}

}  // namespace

TEST_CASE("the result of a plain collective on tracked values is refused by name where gradients flow") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm);
    for (const PlainCollective& plain : plain_collectives) {
      const Tensor y = plain.call(z.value(), comm);
      const std::string said = advice(plain.name);
      const Var leaf = tape.watch(data_of(number(comm), y.shape(), 2));
      expect_refusal([&] { expect_recorded(leaf, Var(y)); }, {"mul: input 2, f64 ", said.c_str()});
      expect_refusal([&] { Var(y) + leaf; }, {"add: input 1, f64 ", said.c_str()});
      expect_refusal([&] { expect_recorded(leaf, tape.constant(y)); }, {"mul: input 2, f64 ", said.c_str()});
      expect_refusal([&] { expect_recorded(leaf, replicated_constant(y)); }, {"mul: input 2, f64 ", said.c_str()});
      expect_refusal([&] { expect_recorded(leaf, constant_like(y, z)); }, {"mul: input 2, f64 ", said.c_str()});
    }
  });
}

TEST_CASE(
    "values derived from a plain collective's result are refused too: views, copies, casts and ops without a tape") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm);
    const Tensor all = comm.all_gather(z.value());
    const std::string said = advice("all_gather");
    Tensor copied = Tensor::like(all);
    copied.copy_from(all);
    const Var computed = l2_normalize(Var(all)), constant = exp(tape.constant(all)) * replicated_constant(all);
    for (const Var& y :
         {Var(all.slice(0, 1)), Var(all.reshape({all.size(), 1})), Var(all.clone()), Var(copied),
          Var(all.to(DType::f32)), Var(all.to(DType::f32).to(DType::f64)), Var(all.to(Device::cpu)), computed, constant,
          reshape(computed, {all.size()}), concat({computed, Var(all)}, 1), cast(constant, DType::f32)}) {
      const Var leaf = tape.watch(Tensor::full(y.shape(), 1, y.dtype()));
      expect_refusal([&] { expect_recorded(leaf, y); }, {"mul: input 2, f", said.c_str()});
    }
    const Var first = tape.constant(data_of(0, all.shape())) * Var(all);  // neither needs a gradient
    expect_refusal([&] { matmul(z, first, Transpose::no, Transpose::yes); }, {"matmul: input 2, f64 ", said.c_str()});
  });
}

TEST_CASE("a plain collective on values computed from tracked ones without a tape is refused too") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm);
    for (const Tensor& mine :
         {l2_normalize(Var(z.value())).value(), (Var(z.value()) * 2).value(), z.value().slice(0, 1),
          exp(tape.constant(z.value())).value(), z.value().to(DType::f32).to(DType::f64), tape.watch(w).value()})
      expect_refusal([&] { exp(sum(tape.watch(w)) * sum(Var(comm.all_gather(mine)))); },
                     {"mul: input 2, f64 ()", advice("all_gather").c_str()});
    expect_refusal([&] { expect_recorded(z, slice(all_gather(Var(z.value()), comm), 0, 0, comm.size())); },
                   {"mul: input 2, f64 ", advice("all_gather").c_str()});  // differentiable, but not of a Var
    const Tensor all = comm.all_gather(z.value()), twice = comm.all_reduce(all);
    const Var again = all_reduce(tape.constant(all), comm);  // without a gradient: allowed, and as unusable
    expect_refusal([&] { expect_recorded(tape.watch(all), again); },
                   {"mul: input 2, f64 ", advice("all_reduce").c_str()});
    expect_refusal([&] { tape.watch(twice) * Var(twice); }, {advice("all_reduce").c_str()});
  });
}

TEST_CASE("a loss or a checkpoint result from a plain collective on tracked values is refused") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm);
    Gradients grads;
    const std::string said = advice("all_gather");
    const Var total = sum(tape.constant(comm.all_gather(z.value())));
    expect_refusal([&] { tape.backward(total, scalar(1), grads, Keep::tape); },
                   {"backward: the loss, f64 (), ", said.c_str()});
    expect_refusal([&] { tape.gradient(total, Var(scalar(1)), {z}); },
                   {"gradient: the result, f64 (), ", said.c_str()});
    const auto piece = [&comm](std::span<const Var> v) {
      return Vars{v[0] * 2, exp(Var(comm.all_gather(v[0].value())))};
    };
    const Vars y = checkpoint(piece, {z});
    expect_refusal([&] { tape.gradient(sum(y[0]) * sum(y[1]), Var(scalar(1)), {z}); },
                   {"backward of checkpoint: result 2, f64 ", said.c_str()});
    tape.gradient(sum(y[0]), Var(scalar(1)), {z});
  });
}

TEST_CASE("a message with tracked values is refused on the receiving rank where gradients flow") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const int me = number(comm), last = comm.size() - 1;
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm);
    if (me < last) {
      comm.send(z.value(), {me + 1});
      comm.send(detach(z).value(), {me + 1});
    }
    if (me == 0) return;
    const Tensor got = comm.receive(z.shape(), z.dtype(), z.device(), {me - 1});
    expect_refusal([&] { expect_recorded(z, got); }, {"mul: input 2, f64 ", advice("receive").c_str()});
    expect_recorded(z, comm.receive(z.shape(), z.dtype(), z.device(), {me - 1}));
    expect_recorded(z, tape.watch(got));
  });
}

TEST_CASE("a plain all_gather of tracked values is refused because it would lose half of the gradient") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    // The objective is sum_r z_r sum_s z_s = w^2 (sum x)^2, with z_r = w x_r.
    const Parameter w("w", scalar(1.5));
    double sum_of_x = 0;
    for (int r = 0; r < comm.size(); ++r) sum_of_x += 1 + 0.5 * r;
    const auto slope = [&](auto gather) {
      Tape tape;
      const Var z = reshape(tape.watch(w) * tape.constant(scalar(1 + 0.5 * number(comm))), {1});
      Gradients grads;
      tape.backward(sum(z) * sum(gather(z)), grads);
      return comm.all_reduce(grads[w]).item();
    };
    const double right = slope([&](const Var&z) { return all_gather(z, comm); }),
                 wrong = slope([&](const Var&z) { return Var(comm.all_gather(detach(z).value())); });
    expect_close(scalar(right), scalar(2 * 1.5 * sum_of_x * sum_of_x));
    expect_close(scalar(wrong), scalar(1.5 * sum_of_x * sum_of_x));  // silently, half of it is lost
    expect_refusal([&] { slope([&](const Var& z) { return Var(comm.all_gather(z.value())); }); },
                   {"mul: input 2, f64 ()", advice("all_gather").c_str()});
  });
}

TEST_CASE("results of plain collectives can be read, and used without gradients or after detach()") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm), constant = tape.constant(data_of(number(comm), {comm.size(), 3}, 2));
    const Tensor all = comm.all_gather(z.value());
    expect_close(all, all_gather(z, comm));
    exp(Var(all)) * Var(all);
    tape.constant(all) * tape.constant(all);
    const Tensor free = comm.all_gather(detach(z).value()), of_constants = comm.all_gather(constant.value());
    const Tensor later = detach(all).value();
    for (const Tensor& y : {free, of_constants, later}) matmul(z, Var(y), Transpose::no, Transpose::yes);
    expect_recorded(tape.watch(all), tape.watch(all));  // a new leaf: sending its gradient back is up to the caller
    const Tensor counts = comm.all_reduce(less(z.value(), constant.value()).to(DType::f64));
    expect_recorded(z, counts);  // integers have no gradient
    Tape next;
    expect_recorded(next.watch(w), all.slice(0, comm.size()));  // like the keys of a memory bank
    expect_recorded(next.watch(w), next.constant(all.slice(0, comm.size())));
    Tensor paused;
    {
      const Tape::Pause pause(&tape);
      expect(!(z * Var(all.slice(0, comm.size()))).tracked(), "nothing is recorded");
      paused = comm.all_reduce((z * z).value());
    }
    expect_recorded(z, paused);
  });
}

TEST_CASE("a query's gradients can be exchanged, and are refused only if they are differentiated again") {
  on_tapes([](Tape& tape, Communicator& comm) {
    const Parameter w("w", data_of(0, {comm.size(), 3}));
    const Var z = features(tape, w, comm), loss = sum(square(z) * z);
    const Var slope = tape.gradient(loss, Var(scalar(1)), {z})[0];
    expect_recorded(z, comm.all_reduce(slope.value()));
    Gradients grads;
    tape.backward(loss, scalar(1), grads, Keep::tape);
    expect_recorded(z, comm.all_reduce(grads[w]));
    const Var recorded = tape.gradient(loss, Var(scalar(1)), {z}, Graph::create)[0];
    const Tensor summed = comm.all_reduce(recorded.value());
    expect_refusal([&] { expect_recorded(z, summed); }, {"mul: input 2, f64 ", advice("all_reduce").c_str()});
  });
}

TEST_CASE("a plain collective in a custom pullback is refused when its gradient is recorded") {
  static const Op summed_op{"summed", {}, Algebra::own, Replay::always};
  on_tapes([](Tape& tape, Communicator& comm) {
    const auto summed = [&](const Var& x) {
      return record(summed_op, comm.all_reduce(x.value()),
                    from(x, [&comm](const Var& g) { return Var(comm.all_reduce(g.value())); }));
    };
    const Var x = tape.watch(data_of(number(comm), {3})), seed = tape.constant(data_of(number(comm), {3}, 1));
    const Var y = with_placement(summed(x), comm, Placement::varying);
    tape.gradient(square(y), seed, {x});             // its gradient is correct
    tape.gradient(y * 2, seed, {x}, Graph::create);  // independent of x
    expect_refusal([&] { tape.gradient(square(y), seed, {x}, Graph::create); },
                   {"backward of summed: its gradient, f64 (3), ", advice("all_reduce").c_str()});
  });
}
