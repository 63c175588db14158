// Collectives in two halves: what starting and waiting promise beyond the result, which started_cases.cpp checks.
#include "collectives/ops.h"
#include "collectives/run_ranks.h"
#include "engine/ops/reduce.h"
#include "engine/record.h"
#include "tests/forwarding_transport.h"
#include "tests/on_ranks.h"

using namespace weft;

namespace {

using Notes = std::vector<std::string>;

// Notes when meetings are started and finished.
class Noting final : public ForwardingTransport {
 public:
  Noting(std::unique_ptr<Transport> inner, Notes& log) : ForwardingTransport(std::move(inner)), log_(log) {}
  std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest) override {
    log_.push_back("start " + text(call.verb));
    return std::make_unique<Half>(ForwardingTransport::start(call, std::move(mine), longest), log_);
  }

 private:
  struct Half final : Started {
    std::unique_ptr<Started> inner;
    Notes& log;
    Half(std::unique_ptr<Started> inner, Notes& log) : inner(std::move(inner)), log(log) {}
    void finish(Read read) override {
      inner->finish(read);
      log.push_back("finish");
    }
  };
  Notes& log_;
};

// The same values; says when the gradient passes.
Var note(const Var& x, Notes& log, const char* what) {
  static const Op note_op{"note", {}, Algebra::linear};
  return record(note_op, x.value(), from(x, [&log, what](const Var& g) {
                  log.push_back(what);
                  return g;
                }));
}

}  // namespace

TEST_CASE("the adjoint of a started collective starts where its gradient is complete, and ends where it is needed") {
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

TEST_CASE("what has been started and is not waited for keeps nobody waiting, but gives no gradient") {
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

TEST_CASE("a started collective is waited for once") {
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

TEST_CASE("a rank may change a tensor as soon as it has started a collective on it") {
  on_ranks([](Communicator& comm) {
    Tensor x = data_of(number(comm), {5});
    const Tensor expected = comm.all_reduce(x);
    Pending pending = comm.start(AllReduce{}, x);
    x.copy_from(Tensor::zeros({5}, DType::f64));
    comm.barrier();
    expect_same_bits(pending.wait(), expected);
  });
}

TEST_CASE("a tape that is walked twice starts the adjoints twice") {
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

TEST_CASE(
    "a collective started by one rank where another meets at once is reported, and what each has started is named") {
  for (const int n : {2, 3}) {
    CHECK_THROWS_WITH(run_ranks(n,
                                [](Communicator& comm) {
                                  const Tensor x = data_of(0, {comm.rank().value == 1 ? 3 : 4});
                                  comm.start(AllReduce{}, x).wait();
                                }),
                      Catch::Contains("rank 0 has started call 1 of group 0") && Catch::Contains("f64 (4)") &&
                          Catch::Contains("rank 1 has started call 1 of group 0") && Catch::Contains("f64 (3)"));
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
