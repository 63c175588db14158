// SPDX-License-Identifier: Apache-2.0
// Started collectives: what start and wait guarantee beyond the result, which started_cases.cpp checks.
#include <thread>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/started.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/tape/record.h"

using namespace weft;

namespace {

using Notes = std::vector<std::string>;

// Records when collectives are started and finished.
class Noting final : public ForwardingTransport {
 public:
  Noting(std::unique_ptr<Transport> inner, Notes& log) : ForwardingTransport(std::move(inner)), log_(log) {}
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    log_.push_back("start " + text(call.verb));
    return std::make_unique<Half>(ForwardingTransport::start(call, std::move(mine), longest, ranges), log_);
  }

 private:
  struct Half final : Request {
    std::unique_ptr<Request> inner;
    Notes& log;
    Half(std::unique_ptr<Request> inner, Notes& log) : inner(std::move(inner)), log(log) {}
    void finish(Read read) override {
      inner->finish(read);
      log.push_back("finish");
    }
  };
  Notes& log_;
};

// The identity; records when the gradient passes.
Var note(const Var& x, Notes& log, const char* what) {
  static const Op note_op{"note", {}, Algebra::linear};
  return record(note_op, x.value(), from(x, [&log, what](const Var& g) {
                  log.push_back(what);
                  return g;
                }));
}

}  // namespace

TEST_CASE("the adjoint of a started collective starts once its gradient is complete and ends where it is needed") {
  for (const int n : {1, 2, 3})
    CHECK_NOTHROW(run_ranks(n, [](std::unique_ptr<Transport> transport) {
      Notes log;
      Communicator comm(std::make_unique<Noting>(std::move(transport), log));
      Tape tape;
      const Var x = tape.watch(data_of(number(comm), {4, 3}));
      const Var before = note(x, log, "before the start");
      Started started = start(AllGather{}, before, comm);
      const Var own = note(x, log, "own work");
      const Var all = note(started.wait(), log, "after the wait");
      const Var loss = sum(square(all)) + sum(own);
      log.clear();
      tape.gradient(loss, {x});
      const Notes expected{"after the wait", "start reduce_scatter", "own work", "finish", "before the start"};
      expect(log == expected, "another order");
    }));
}

TEST_CASE("a started max, min or product is refused if it needs a gradient") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Tensor plain = data_of(number(comm), {2 * comm.size(), 3});
    const Var x = tape.watch(plain);
    for (const ReduceOp op : {ReduceOp::maximum, ReduceOp::minimum, ReduceOp::product}) {
      const std::string what = "the " + text(op) + " has no gradient here; take ";
      expect_refusal([&] { start(AllReduce{op}, x, comm); }, {"all_reduce: ", (what + "all_reduce, in").c_str()});
      expect_refusal([&] { start(Scan{op}, x, comm); }, {"scan: ", (what + "scan, in one piece").c_str()});
      expect_refusal([&] { start(Exscan{op}, x, comm); }, {"exscan: ", what.c_str()});
      expect_refusal([&] { start(ReduceScatter{{}, op}, x, comm); }, {"reduce_scatter: ", (what + "all_").c_str()});
      expect_refusal([&] { start(Reduce{{0}, op}, x, comm); }, {"reduce: ", (what + "all_reduce and use").c_str()});
      const Tensor whole = comm.all_reduce(plain, op);
      expect_same_bits(start(AllReduce{op}, tape.constant(plain), comm).wait().value(), whole);
    }
  });
}

TEST_CASE("waiting for a started collective blocks until every rank has started it") {
  on_ranks({2, 3}, [](Communicator& comm) {
    for (int late = 0; late < comm.size(); ++late) {
      const Tensor x = data_of(number(comm), {4}, late), expected = comm.all_reduce(x);
      if (number(comm) == late) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      expect_same_bits(comm.start(AllReduce{}, x).wait(), expected);
    }
  });
}

TEST_CASE("a started collective that is never awaited blocks no rank, but gives no gradient") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {4, 3}));
    start(AllReduce{}, x, comm);
    expect_refusal([&] { tape.gradient(sum(square(x)), {x}); },
                   {"start: the all_reduce started at ", "test_started.cpp", "was not waited for"});
    comm.start(AllReduce{}, x.value());
    comm.barrier();
  });
}

TEST_CASE("a started collective can be awaited only once") {
  on_ranks({1, 2}, [](Communicator& comm) {
    Pending pending = comm.start(AllReduce{}, data_of(number(comm), {4}));
    pending.wait();
    expect_refusal([&] { pending.wait(); }, {"wait: this collective has been waited for already"});
    Tape tape;
    Started started = start(AllReduce{}, tape.watch(data_of(number(comm), {4})), comm);
    started.wait();
    expect_refusal([&] { started.wait(); }, {"wait: this collective has been waited for already"});
  });
}

TEST_CASE("a rank can change a tensor right after starting a collective on it") {
  on_ranks([](Communicator& comm) {
    Tensor x = data_of(number(comm), {5});
    const Tensor expected = comm.all_reduce(x);
    Pending pending = comm.start(AllReduce{}, x);
    x.copy_from(Tensor::zeros({5}, DType::f64));
    comm.barrier();
    expect_same_bits(pending.wait(), expected);
  });
}

TEST_CASE("peers can still read a collective that was started on a group this rank then drops") {
  on_ranks({2, 3}, [](Communicator& world) {
    auto group = world.duplicate();
    const Tensor mine = data_of(number(world), {100}), expected = world.all_reduce(mine);
    std::optional<Pending> pending = group->start(AllReduce{}, mine);
    if (number(world) == 0) {
      pending.reset();
      group.reset();
      std::vector<Tensor> others;  // these would reuse its memory
      for (int i = 0; i < 20; ++i) others.push_back(Tensor::full({100}, 7, DType::f64));
    }
    world.barrier();
    if (pending) expect_same_bits(pending->wait(), expected);
    world.barrier();
  });
}

TEST_CASE("starting more collectives than the limit is refused until the oldest is awaited") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {3});
    std::vector<Pending> pending;
    for (int i = 0; i < 256; ++i) pending.push_back(comm.start(AllReduce{}, x));
    expect_refusal([&] { comm.start(AllReduce{}, x); },
                   {"all_reduce: 256 collectives of this group have been started since one that still waits"});
    pending[0].wait();
    expect_same_bits(comm.start(AllReduce{}, x).wait(), comm.all_reduce(x));
  });
}

TEST_CASE("a started gather and scatter need no counts, and only the root's rows have a gradient to scatter") {
  on_ranks([](Communicator& comm) {
    const GroupRank root{comm.size() - 1};
    const bool here = comm.rank() == root;
    const Shape whole{2 * comm.size(), 3};
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {2, 3})), z = tape.watch(data_of(number(comm), whole));
    Started gather = start(Gather{root}, x, comm), scatter = start(Scatter{root}, z, comm);
    const Var gathered = gather.wait(), scattered = scatter.wait();
    const auto rows = [&](int r) { return Var(data_of(r, {2, 3}, 2)); };
    const Tensor all = data_of(root.value, whole, 1);
    const Var each = sum(scattered * rows(number(comm))), loss = here ? each + sum(gathered * all) : each;
    const std::vector<Var> g = tape.gradient(loss, scalar(1), {x, z});
    expect_close(g[0], block(all, 2, number(comm)));
    for (int r = 0; r < comm.size(); ++r) expect_close(block(g[1], 2, r), rows(r) * (here ? 1 : 0));
  });
}

TEST_CASE("started collectives accept the same input as complete ones and have the same placements") {
  on_ranks({2, 3}, [](Communicator& comm) {
    const Parameter w("w", data_of(0, {2, 3}));
    Tape tape;
    declare_group(tape, comm);
    const Var x = tape.watch(data_of(number(comm), {2, 3}));
    expect_refusal([&] { start(AllReduce{}, tape.watch(w), comm); }, {"all_reduce: its input is Replicated over"});
    expect_refusal([&] { start(AllGather{}, as_partial(x, comm), comm); }, {"all_gather: its input is Partial over"});
    expect(placement_of(start(AllGather{}, x, comm).wait(), comm) == Placement::replicated, "of an all_gather");
    expect(placement_of(start(Scan{}, tape.watch(w), comm).wait(), comm) == Placement::varying, "of a scan");
  });
}

TEST_CASE("two backward passes over a tape start the adjoints twice") {
  on_ranks([](Communicator& comm) {
    const Parameter w("w", data_of(0, {3}));
    Tape tape;
    const Var x = tape.watch(w) * tape.constant(data_of(number(comm), {3}, 1));
    Started started = start(AllReduce{}, x, comm);
    const Var loss = sum(square(started.wait()) * tape.constant(data_of(number(comm), {3}, 2)));
    Gradients once, twice;
    tape.backward(loss, once, Keep::tape);
    tape.backward(loss, twice, Keep::tape);
    tape.backward(loss, twice);
    expect_close(twice[w], Var(once[w]) * 2);
  });
}

TEST_CASE("a collective started on one rank but called blocking on another is reported with what each started") {
  for (const int n : {2, 3}) {
    CHECK_THROWS_WITH(run_ranks(n,
                                [](Communicator& comm) {
                                  const Tensor x = data_of(0, {comm.rank().value == 1 ? 3 : 4});
                                  comm.start(AllReduce{}, x).wait();
                                }),
                      Catch::Contains("rank 1 has started call 1 of group 0") && Catch::Contains("f64 (3)") &&
                          Catch::Contains("f64 (4)"));  // of whichever rank came first
    CHECK_THROWS_WITH(run_ranks(n,
                                [](Communicator& comm) {
                                  const Tensor x = data_of(0, {4});
                                  if (comm.rank().value == 1) comm.barrier();
                                  Pending pending = comm.start(AllReduce{}, x);
                                  if (comm.rank().value != 1) comm.barrier();
                                  pending.wait();
                                }),
                      Catch::Contains("collective mismatch"));
  }
}
