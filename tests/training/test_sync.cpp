// SPDX-License-Identifier: Apache-2.0
// Gradients of several ranks, summed: each term once, whatever a step does.
#include "weft/optim/parallel/sync.h"

#include "tests/support/chosen_terms.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;

namespace {

using When = GradientSync::When;
using Choice = ChosenTerms::Choice;

// Every rank's terms of these passes, in the order of the ranks; empty if there is none.
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

// Passes that differ from rank to rank in their number and in what they use. No rank uses parameter 5.
std::vector<Choice> unlike_passes(int rank) {
  if (rank == 0) return {{0, 1, 2}, {3}, {2, 0}};
  if (rank == 1) return {{4, 3}};
  if (rank == 2) return {};
  return {{0, 4}, {0, 1, 2, 3, 4}, {1}, {rank % 5}};
}

}  // namespace

TEST_CASE("every term enters one sum, whatever each rank's passes use and whenever reductions begin", "[r29][r32]") {
  on_ranks([](Communicator& comm) {
    ChosenTerms terms(comm);
    const FlatLayout layout = terms.layout();
    for (const GradientSync::Options& options : every_way()) {
      GradientSync sync(layout, comm, options);
      for (int step = 0; step < 3; ++step) {  // in the second, others are unused
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

TEST_CASE("two losses of one graph, and a pass after the one announced as the last, are summed once", "[r29]") {
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

TEST_CASE("the last pass is what is announced when backward begins, not when its forward ran", "[r30]") {
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

TEST_CASE("a parameter unused in the last pass keeps what earlier passes gave it", "[r32]") {
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

TEST_CASE("unused on this rank is exact zeros, and unused on all is absent, also after a step that used it", "[r33]") {
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

TEST_CASE("more passes than may be on their way at once, and on one rank only, wait for nobody", "[r34]") {
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

TEST_CASE("a step that is given up leaves nothing behind, however far each rank was") {
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

TEST_CASE("terms that come without a backward count, too") {
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

TEST_CASE("what cannot be summed is refused") {
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

TEST_CASE("bf16 gradients are summed in f32") {
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
