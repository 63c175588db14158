// SPDX-License-Identifier: Apache-2.0
// When hooks fire, how often, and what they see.
#include "tests/support/chosen_terms.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace test_sync_hooks {

using When = GradientSync::When;
using Choice = ChosenTerms::Choice;
const Choice all = {0, 1, 2, 3, 4, 5};

struct Fired {
  int accumulated = 0, before = 0, after = 0;
  explicit Fired(GradientSync& sync) {
    sync.gradients().after_accumulate([this](const Parameter&, const Tensor&) { ++accumulated; });
    sync.before_reduce([this](Range, const Tensor&) { ++before; });
    sync.after_reduce([this](Range, const Tensor&) { ++after; });
  }
  bool are(int a, int b, int c) const { return accumulated == a && before == b && after == c; }
};

TEST_CASE("gradient hooks fire once per parameter and backward, and reduction hooks once per bucket", "[r27][r31]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const When when : whens)
      for (const int64_t size : {1, 1 << 20}) {
        GradientSync sync(terms.layout(), comm, {.when = when, .bucket = size});
        const Fired fired(sync);
        const int buckets = size == 1 ? ChosenTerms::count : 1;
        terms.backward(all, 0, sync.gradients());
        terms.backward({0, 3}, 1, sync.gradients());
        sync.expect_last_pass();
        terms.backward(all, 2, sync.gradients());
        sync.finish();
        const int rounds = when != When::in_every_pass ? 1 : 3;
        expect(fired.accumulated == 14, "6 and 2 and 6 contributions");
        expect(fired.before >= buckets && fired.before <= rounds * buckets, "no more reductions than rounds");
        expect(fired.after == buckets, "a sum that a later one replaces is not shown");
        if (when != When::in_every_pass) expect(fired.before == buckets, "one reduction of each bucket");
      }
  });
}

TEST_CASE("a parameter inside and outside of checkpoints is ready once", "[r27]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const When when : whens) {
      const FlatLayout layout = terms.layout();
      GradientSync sync(layout, comm, {.when = when, .bucket = 1});
      const Fired fired(sync);
      Tape tape;
      declare_group(tape, comm);
      const Var x = tape.constant(terms.term(number(comm), 0, 0));
      const auto piece = [&](std::span<const Var> in) { return tanh(in[0] * tape.watch(terms[0])); };
      const Var y = checkpoint(piece, {checkpoint(piece, {x})}) * tape.watch(terms[0]);
      Tape plain_tape;
      const auto plain = [&](const Var& in) { return tanh(in * plain_tape.watch(terms[0])); };
      Gradients expected;
      plain_tape.backward(sum(plain(plain(plain_tape.constant(x.value()))) * plain_tape.watch(terms[0])), expected);
      sync.expect_last_pass();
      tape.backward(sum(y), sync.gradients());
      sync.finish();
      expect(fired.accumulated == 1, "one parameter, one backward");
      expect_close(terms.owned(sync, layout, 0), comm.all_reduce(expected[terms[0]]));
    }
  });
}

TEST_CASE("gradient queries fire no hook and add nothing to a sum", "[r28]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const When when : whens) {
      GradientSync sync(layout, comm, {.when = when, .bucket = 1});
      const Fired fired(sync);
      Tape tape;
      const Var loss = terms.loss(tape, {3}, 0);
      sync.expect_last_pass();
      for (const Graph graph : {Graph::none, Graph::create}) tape.gradient(loss, {tape.watch(terms[3])}, graph);
      expect(fired.are(0, 0, 0) && !sync.gradients().has(terms[3]), "a query leaves no trace");
      tape.backward(loss, sync.gradients());
      sync.finish();
      expect(fired.accumulated == 1, "the backward fires");
      expect_close(terms.owned(sync, layout, 3), total(comm, [&](int r) { return Var(terms.term(r, 3, 0)); }));
    }
  });
}

TEST_CASE("hooks see this rank's terms before a reduction and the sum after it", "[r31]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      const Range place = layout.places()[3].range();
      int seen = 0;
      sync.before_reduce([&](Range range, const Tensor& values) {
        if (intersection(range, place) != place) return;
        ++seen;
        expect_same_bits(values.slice(place.first - range.first, place.last - range.first),
                         terms.term(number(comm), 3, 0));
      });
      sync.after_reduce([&](Range range, const Tensor& values) {
        const Range mine = intersection(intersection(range, place), sync.owned());
        expect(values.size() == intersection(range, sync.owned()).size(), "as many sums as this rank gets");
        if (mine.size() == 0) return;
        const Tensor sums = total(comm, [&](int r) { return Var(terms.term(r, 3, 0)); }).value();
        expect_close(values.slice(mine.first - range.first, mine.last - range.first),
                     sums.slice(mine.first - place.first, mine.last - place.first));
      });
      sync.expect_last_pass();
      terms.backward(all, 0, sync.gradients());
      sync.finish();
      expect(seen == 1, "brought once");
    }
  });
}

TEST_CASE("all hooks of a parameter see its local gradient before it is freed", "[r31]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const When when : whens) {
      GradientSync sync(layout, comm, {.when = when, .bucket = 1, .sharded = true, .frees = true});
      int seen = 0;
      sync.gradients().after_accumulate([&](const Parameter& p, const Tensor& gradient) {
        ++seen;
        expect_same_bits(gradient, terms.term(number(comm), static_cast<int>(layout.find(p)), 0));
      });
      sync.expect_last_pass();
      terms.backward(all, 0, sync.gradients());
      expect(seen == ChosenTerms::count, "all were seen");
      if (when != When::at_finish) expect(!sync.gradients().has(terms[0]), "given up in backward");
      sync.finish();
      for (const int p : all) expect(!sync.gradients().has(terms[p]), "given up");
    }
  });
}

TEST_CASE("overlapped reductions start with the buckets whose parameters the previous pass used", "[r33]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const When when : {When::in_last_pass, When::in_every_pass}) {
      GradientSync sync(terms.layout(), comm, {.when = when, .bucket = 1});
      std::vector<int> started;  // reductions so far, after each parameter of a pass
      int reductions = 0;
      sync.before_reduce([&](Range, const Tensor&) { ++reductions; });
      sync.gradients().after_accumulate([&](const Parameter&, const Tensor&) { started.push_back(reductions); });
      for (const std::vector<int>& expected : {std::vector{0, 0, 0}, {0, 2, 4}, {0, 2, 4}}) {  // the last: unused
        started.clear();
        reductions = 0;
        sync.expect_last_pass();
        terms.backward({0, 2, 4}, 0, sync.gradients());
        expect(started == expected, "reductions begin with the second step");
        sync.finish();
        sync.clear();
      }
    }
  });
}

TEST_CASE("a bucket is reduced when it has all uses of its parameters, and no more than once", "[r33]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const When when : {When::in_last_pass, When::in_every_pass}) {
      GradientSync sync(terms.layout(), comm, {.when = when, .bucket = 1});
      int reductions = 0;
      sync.before_reduce([&](Range, const Tensor&) { ++reductions; });
      for (int step = 1; step <= 2; ++step) {
        Tape tape;
        declare_group(tape, comm);
        Var loss = tape.constant(Tensor::zeros({}, terms[0].value.dtype()));
        for (int use = 0; use < 2; ++use)
          for (int i = 0; i < ChosenTerms::count; ++i)
            loss = loss + sum(tape.watch(terms[i]) * tape.constant(terms.term(number(comm), i, use)));
        sync.expect_last_pass();
        tape.backward(loss, sync.gradients());
        sync.finish();
        expect(reductions == step * ChosenTerms::count, "one reduction of each bucket");
        sync.clear();
      }
    }
  });
}

TEST_CASE("buckets that no rank has used are not reduced at the end of a step", "[r33]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const GradientSync::Options& options : every_way({1})) {
      if (options.when == When::in_every_pass) continue;
      GradientSync sync(terms.layout(), comm, options);
      const Fired fired(sync);
      for (int step = 1; step <= 2; ++step) {
        if (number(comm) == 0) terms.backward({2}, step, sync.gradients());
        sync.finish();
        expect(fired.before == step && fired.after == step, "one bucket in each step");
        sync.clear();
      }
    }
  });
}

}  // namespace test_sync_hooks
