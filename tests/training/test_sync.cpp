// SPDX-License-Identifier: Apache-2.0
// GradientSync sums the gradients of several ranks, each term once, whatever happens in a step.
#include "weft/optim/parallel/sync.h"

#include "tests/support/chosen_terms.h"
#include "weft/collectives/checks/traffic.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;

namespace {

using When = GradientSync::When;
using Choice = ChosenTerms::Choice;

// Every rank's terms of these passes in rank order; empty if there is none.
Tensor sum_of_terms(const ChosenTerms& terms, const Communicator& comm, int parameter,
                    const std::function<std::vector<Choice>(int rank)>& passes) {
  Tensor total;
  const auto add = [&](Tensor& sum, const Tensor& term) {
    if (sum.defined())
      backend(Device::cpu).accumulate(1, term, sum);
    else
      sum = term.clone();
  };
  for (int r = 0; r < comm.size(); ++r) {
    Tensor mine;
    const std::vector<Choice> all = passes(r);
    for (size_t pass = 0; pass < all.size(); ++pass)
      for (const int p : all[pass])
        if (p == parameter) add(mine, terms.term(r, p, static_cast<int>(pass)));
    if (mine.defined()) add(total, mine);
  }
  return total;
}

void expect_sums(const ChosenTerms& terms, const FlatLayout& layout, const GradientSync& sync, const Communicator& comm,
                 const std::function<std::vector<Choice>(int rank)>& passes) {
  for (int p = 0; p < ChosenTerms::count; ++p) {
    const Tensor expected = sum_of_terms(terms, comm, p, passes);
    expect(sync.present()[static_cast<size_t>(p)] == expected.defined(), "parameter " + text(p) + " is present or not");
    if (expected.defined()) expect_close(terms.owned(sync, layout, p), terms.owned(sync, layout, p, expected));
  }
}

// Passes that differ by rank in number and in the parameters they use. No rank uses parameter 5.
std::vector<Choice> unlike_passes(int rank) {
  if (rank == 0) return {{0, 1, 2}, {3}, {2, 0}};
  if (rank == 1) return {{4, 3}};
  if (rank == 2) return {};
  return {{0, 4}, {0, 1, 2, 3, 4}, {1}, {rank % 5}};
}

}  // namespace

TEST_CASE("GradientSync sums every term once, whatever parameters ranks use and whenever reductions start",
          "[r29][r32]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      for (int step = 0; step < 3; ++step) {  // the second step leaves out other parameters
        const auto passes = [&](int r) { return unlike_passes((r + step) % 4); };
        const std::vector<Choice> mine = passes(number(comm));
        for (size_t pass = 0; pass < mine.size(); ++pass) {
          if (pass + 1 == mine.size()) sync.expect_last_pass();
          terms.backward(mine[pass], static_cast<int>(pass), sync.gradients());
        }
        sync.finish();
        expect_sums(terms, layout, sync, comm, passes);
        sync.clear();
      }
    }
  });
}

TEST_CASE("GradientSync sums two losses of one graph, and a pass after the announced last one, once", "[r29]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way({1, 1 << 20})) {
      GradientSync sync(layout, comm, options);
      Tape tape;
      const Var first = terms.loss(tape, {0, 1, 3, 4}, 0), second = terms.loss(tape, {0, 2, 3}, 1);
      sync.expect_last_pass();
      tape.backward(first, sync.gradients(), Keep::tape);
      tape.backward(second, sync.gradients());
      terms.backward({1, 5}, 2, sync.gradients());
      sync.finish();
      expect_sums(terms, layout, sync, comm, [](int) { return std::vector<Choice>{{0, 1, 3, 4}, {0, 2, 3}, {1, 5}}; });
    }
  });
}

TEST_CASE("GradientSync takes the pass as last that is announced when backward starts, not during its forward",
          "[r30]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    GradientSync sync(terms.layout(), comm, {.when = When::in_last_pass, .bucket = 1});
    int reductions = 0;
    sync.before_reduce([&](Range, const Tensor&) { ++reductions; });
    Tape first, second;
    const Var a = terms.loss(first, {0, 1, 2, 3, 4, 5}, 0), b = terms.loss(second, {0, 1, 2, 3, 4, 5}, 1);
    second.backward(b, sync.gradients());
    expect(reductions == 0, "nothing is reduced in a pass that is not the last");
    sync.expect_last_pass();
    first.backward(a, sync.gradients());
    expect(reductions == ChosenTerms::count, "every bucket is on its way before finish");
    sync.finish();
    expect(reductions == ChosenTerms::count, "and is reduced once");
  });
}

TEST_CASE("a rank that is alone sums its gradients where they are, unless sums of a part of them may be under way") {
  CHECK_NOTHROW(run_ranks(1, [](Communicator& comm) {
    ChosenTerms terms(comm);
    for (const When when : {When::at_finish, When::in_every_pass}) {
      GradientSync sync(terms.layout(), comm, {.when = when, .bucket = 7});
      terms.backward({0, 1, 2, 3, 4, 5}, 0, sync.gradients());
      sync.finish();
      const Tensor gradient = sync.gradients()[terms[0]];
      expect(gradient.shares_memory_with(sync.reduced()) == (when == When::at_finish), "whether they share memory");
    }
  }));
}

TEST_CASE("reductions that start during backward send as little as one all_reduce") {
  for (const int n : {2, 3, 5})
    CHECK_NOTHROW(run_ranks(n, [](std::unique_ptr<Transport> transport) {
      Traffic traffic;
      Communicator comm(counted(std::move(transport), traffic));
      ChosenTerms terms(comm);
      GradientSync sync(terms.layout(), comm, {.when = GradientSync::When::in_last_pass, .bucket = 7});
      Tape tape;
      const Var loss = terms.loss(tape, {0, 1, 2, 3, 4, 5}, 0);
      sync.expect_last_pass();
      const Traffic before = traffic;
      tape.backward(loss, sync.gradients());
      sync.finish();
      const Traffic sent = traffic.since(before);
      const auto bytes = static_cast<int64_t>(sync.reduced().bytes());
      expect(sent[Verb::reduce_scatter_v].bytes == bytes, "the gradients, once");
      expect(sent[Verb::all_gather_v].bytes <= bytes / comm.size() + 8 * sent[Verb::all_gather_v].calls, "own sums");
      expect(sent[Verb::all_reduce].calls == 0, "an all_reduce in two halves sends everything to all ranks");
    }));
}

TEST_CASE("GradientSync keeps earlier terms of a parameter that the last pass does not use", "[r32]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      const std::vector<Choice> passes = {{0, 3, 5}, {1, 3}, {2}};
      for (int pass = 0; pass < 3; ++pass) {
        if (pass == 2) sync.expect_last_pass();
        terms.backward(passes[static_cast<size_t>(pass)], pass, sync.gradients());
      }
      sync.finish();
      expect_sums(terms, layout, sync, comm, [&](int) { return passes; });
    }
  });
}

TEST_CASE("GradientSync counts a gradient once that was not complete when the reduction of its bucket started") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way({50})) {  // parameters 3 and 4 are in one bucket
      GradientSync sync(layout, comm, options);
      // In the second pass 0 arrives between two terms of 3 and the last.
      const std::vector<Choice> passes = {{0, 4, 5}, {3, 0, 4, 5, 3, 3}};
      for (size_t pass = 0; pass < passes.size(); ++pass) {
        sync.expect_last_pass();
        terms.backward(passes[pass], static_cast<int>(pass), sync.gradients());
      }
      sync.finish();
      expect_sums(terms, layout, sync, comm, [&](int) { return passes; });
    }
  });
}

TEST_CASE("GradientSync gives zeros to ranks that do not use a parameter, and no gradient if no rank does", "[r33]") {
  on_ranks({2, 3}, [](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      for (const int user : {-1, 0, 1, -2}) {  // all; one rank only; none
        const Choice chosen = user == -1 || user == number(comm) ? Choice{1, 3} : Choice{};
        sync.expect_last_pass();
        terms.backward(chosen, 0, sync.gradients());
        sync.finish();
        expect_sums(terms, layout, sync, comm, [&](int r) {
          return user == -1 || user == r ? std::vector<Choice>{{1, 3}} : std::vector<Choice>{};
        });
        if (user >= 0)
          expect_same_bits(terms.owned(sync, layout, 3), terms.owned(sync, layout, 3, terms.term(user, 3, 0)));
        sync.clear();
      }
    }
  });
}

TEST_CASE("GradientSync never blocks if one rank runs more passes than may be in flight", "[r34]") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const bool frees : {false, true}) {
      GradientSync sync(layout, comm, {.when = When::in_every_pass, .bucket = 1, .sharded = frees, .frees = frees});
      for (int step = 0; step < 2; ++step) {
        const auto passes = [](int r) { return std::vector<Choice>(r == 0 ? 100 : 1, Choice{0, 1, 2, 3, 4, 5}); };
        const auto mine = passes(number(comm));
        for (size_t pass = 0; pass < mine.size(); ++pass)
          terms.backward(mine[pass], static_cast<int>(pass), sync.gradients());
        sync.finish();
        expect_sums(terms, layout, sync, comm, passes);
        sync.clear();
      }
    }
  });
}

TEST_CASE("GradientSync discards a step completely, however far each rank has come") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      for (int pass = 0; pass < number(comm); ++pass) {
        sync.expect_last_pass();
        terms.backward({0, 3, 4, 5}, pass, sync.gradients());
      }
      sync.clear();
      terms.backward({1, 4}, 7, sync.gradients());
      sync.finish();
      expect_sums(terms, layout, sync, comm, [](int) {
        std::vector<Choice> passes(8);
        passes[7] = {1, 4};
        return passes;
      });
    }
  });
}

TEST_CASE("GradientSync includes terms that are added without a backward") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      sync.gradients().add(terms[1], terms.term(number(comm), 1, 0));
      sync.expect_last_pass();
      terms.backward({0, 1, 3}, 1, sync.gradients());
      sync.gradients().add(terms[3], terms.term(number(comm), 3, 2));
      sync.finish();
      expect_sums(terms, layout, sync, comm, [](int) { return std::vector<Choice>{{1}, {0, 1, 3}, {3}}; });
    }
  });
}

TEST_CASE("GradientSync refuses terms that cannot be summed") {
  run_ranks(2, [](Communicator& comm) {
    ChosenTerms terms(comm), others(comm);
    GradientSync sync(terms.layout(), comm);
    expect_refusal([&] { others.backward({1}, 0, sync.gradients()); },
                   {"gradients: p1 is not among the parameters that are trained here", "Tape::Freeze"});
    sync.finish();
    expect_refusal([&] { sync.finish(); }, {"finish: this step is finished; clear() begins the next"});
    expect_refusal([&] { terms.backward({1}, 0, sync.gradients()); },
                   {"gradients: p1 gets another after finish(); clear() begins the next step"});
    expect_refusal([&] { GradientSync(terms.layout(), comm, {.bucket = 0}); }, {"buckets: of 0 elements"});
  });
}

TEST_CASE("GradientSync sums bf16 gradients in f32") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm, DType::bf16);
    const FlatLayout layout = terms.layout();
    GradientSync sync(layout, comm, {.bucket = 50});
    terms.backward({1, 3}, 0, sync.gradients());
    sync.finish();
    expect_same_bits(terms.owned(sync, layout, 3),
                     total(comm, [&](int r) { return Var(terms.term(r, 3, 0).to(DType::f32)); }).value());
  });
}
