// SPDX-License-Identifier: Apache-2.0
// The codebook of a VectorQuantize: its state does not depend on how a batch is divided.
#include "tests/losses/codebook_checks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/quantizers/codebook/chosen_rows.h"
#include "weft/losses/quantizers/codebook/k_means.h"

using namespace weft;
using namespace weft::checks;

TEST_CASE("a codebook has the same bits after 50 steps on all ranks and for any number of ranks") {
  for (const bool unit : {false, true}) {
    VectorQuantizeOptions options = following();
    options.codebook.unit = unit;
    const State one = state_after(1, options, steps(50, 1));
    for (const int ranks : {2, 3, 4, 5}) {
      INFO(ranks << " ranks" << (unit ? ", cosine" : ""));
      CHECK(state_after(ranks, options, steps(50, 1)) == one);
    }
  }
}

TEST_CASE("a codebook resumes from its buffers") {
  run_ranks(2, [](Communicator& comm) {
    VectorQuantize one("vq", following(), {.key = {1}}), other("vq", following(), {.key = {2}});
    steps(5, 1)(one, comm);
    for (size_t i = 0; i < one.buffers().size(); ++i) other.buffers()[i]->value = one.buffers()[i]->value.clone();
    for (VectorQuantize* quantize : {&one, &other}) steps(5, 1)(*quantize, comm);
    expect(state_of(one) == state_of(other), "it goes on otherwise");
  });
}

TEST_CASE("codes of a cosine codebook have length 1 before and after each update") {
  run_ranks(2, [](Communicator& comm) {
    VectorQuantize quantize("vq", {.codebook = {.dim = dim, .codes = 9, .unit = true}}, {.key = {1}});
    for (int step = 0; step < 3; ++step) {
      for (const double length : norm(Var(quantize.codebook.codes.value), 1).value().values())
        expect(std::abs(length - 1) < 1e-6, "its length");
      steps(1, 1)(quantize, comm);
    }
  });
}

TEST_CASE("several passes in one step update a codebook like one pass") {
  VectorQuantizeOptions options = following();
  options.codebook.k_means_iterations = 0;  // k-means uses the first pass alone
  const State one = state_after(1, options, steps(20, 1));
  for (const int64_t passes : {2, 3})
    for (const int ranks : {1, 2, 4}) CHECK(state_after(ranks, options, steps(20, passes)) == one);
}

TEST_CASE("a codebook is the same if its tokens are added up before update, and none may come in between") {
  run_ranks(2, [](Communicator& comm) {
    VectorQuantize late("vq", following(), {.key = {1}}), early("vq", following(), {.key = {1}});
    const auto pass = [&](VectorQuantize& quantize, uint64_t step) {
      const auto [first, last] = part(40, comm);
      quantize(tokens(step, 40).slice(first, last), training(step), comm);
    };
    for (uint64_t step = 0; step < 50; ++step) {
      pass(late, step);
      pass(early, step);
      early.add_up(comm);
      late.update(comm, {8, step});
      early.update(comm, {8, step});
    }
    expect(state_of(early) == state_of(late), "it differs");
    early.add_up(comm);
    expect_refusal([&] { pass(early, 50); }, {"gets tokens between add_up and update"});
  });
}

TEST_CASE("the codebook tests replace codes, so that all state is in use") {
  run_ranks(2, [](Communicator& comm) {
    VectorQuantize quantize("vq", following(), {.key = {1}});
    int64_t replaced = 0;
    for (uint64_t step = 0; step < 50; ++step) {
      const auto [first, last] = part(40, comm);
      quantize(tokens(step, 40).slice(first, last), training(step), comm);
      quantize.update(comm, {8, step});
      replaced += quantize.codebook.replaced();
    }
    expect(replaced > 20, "only " + text(replaced) + " codes were replaced");
  });
}

TEST_CASE("a codebook update moves codes to the averages of their tokens") {
  run_ranks(2, [](Communicator& comm) {
    VectorQuantize quantize("vq", {.codebook = {.dim = 1, .codes = 2, .decay = 0.75}},
                            {.key = {}, .dtype = DType::f64});
    for (Parameter* p : {&quantize.codebook.codes, &quantize.codebook.sums})
      p->value = Tensor::from({2, 1}, {0, 10}, DType::f64);
    const Tensor all = Tensor::from({3, 1}, {1, 9, 2}, DType::f64);
    const Tensor mine = number(comm) == 0 ? all.slice(0, 1) : all.slice(1, 3);
    const Quantized q = quantize(mine, training(0), comm);
    expect_close(scalar(sum_over_ranks(q.loss.value().item(), comm)), scalar((1 + 1 + 4) / 3.0));
    quantize.update(comm, {});
    const double size0 = 0.75 + 0.25 * 2, size1 = 0.75 + 0.25, total = size0 + size1;
    const auto smooth = [&](double size) { return (size + 1e-5) / (total + 2e-5) * total; };
    expect_close(quantize.codebook.sizes.value, Tensor::from({2}, {size0, size1}, DType::f64));
    expect_close(quantize.codebook.sums.value, Tensor::from({2, 1}, {0.25 * 3, 7.5 + 0.25 * 9}, DType::f64));
    expect_close(quantize.codebook.codes.value,
                 Tensor::from({2, 1}, {0.75 / smooth(size0), 9.75 / smooth(size1)}, DType::f64));
    const double p = size0 / total, perplexity = std::exp(-p * std::log(p) - (1 - p) * std::log(1 - p));
    expect(std::abs(quantize.codebook.perplexity() - perplexity) < 1e-12, "perplexity");
    expect(quantize.codebook.smaller_than(1.1) == 1, "one code is smaller");
  });
}

TEST_CASE("k-means ends with each center at its tokens' mean, with the same bits for any number of ranks") {
  constexpr int64_t rows = 300, codes = 7;
  const Tensor all = Tensor::uniform({rows, 3}, {6, 6});
  std::vector<double> one;
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](Communicator& comm) {
      const auto [first, last] = part(rows, comm);
      const auto [centers, counts] = k_means(all.slice(first, last), codes, 60, false, comm, {3, 3});
      if (comm.size() == 1) one = centers.values();
      expect(centers.values() == one, "other centers");
      expect(sum(Var(counts)).value().item() == rows, "every token counts once");
      const Tensor more = k_means(all.slice(first, last), codes, 61, false, comm, {3, 3}).centers;
      expect(more.values() == one, "they still move");
      const Tensor other = k_means(all.slice(first, last), codes, 60, false, comm, {3, 4}).centers;
      expect(other.values() != one, "the key decides where it begins");
    });
  }
}

TEST_CASE("a k-means iteration moves centers to their tokens' means and keeps centers without tokens") {
  on_ranks([](Communicator& comm) {
    const Tensor all = Tensor::from({4, 1}, {1, 2, 30, 34});
    const auto mine = part(4, comm);
    const auto centers = [&](int64_t codes, int64_t iterations) {
      return k_means(all.slice(mine.first, mine.second), codes, iterations, false, comm, {3}).centers.values();
    };
    expect(centers(4, 0) == all.values() && centers(4, 1) == all.values(), "every token its own");
    const std::vector<double> seeds = centers(1, 0);
    const std::vector<double> tokens = all.values();
    expect(std::count(tokens.begin(), tokens.end(), seeds[0]) == 1, "it begins with a token");
    expect(centers(1, 1) == std::vector<double>{16.75}, "the mean of all");
    expect(centers(6, 3) == std::vector<double>{1, 1, 2, 30, 30, 34}, "those without tokens stay");
    VectorQuantize quantize("vq", {.codebook = {.dim = 1, .codes = 6}}, {.key = {1}});
    quantize.start(all.slice(mine.first, mine.second), comm, {3});
    expect(quantize.codebook.sizes.value.values() == std::vector<double>(6, 1), "and count as one");
    expect(quantize.codebook.sums.value.values() == quantize.codebook.codes.value.values(), "of that token");
  });
}

TEST_CASE("k-means starts from distinct tokens that are drawn uniformly") {
  std::vector<double> chosen(10);
  for (uint64_t key = 0; key < 5000; ++key) {
    const Rows numbers = chosen_numbers(3, 10, {key});
    REQUIRE(numbers.size() == 3);
    CHECK((0 <= numbers[0] && numbers[0] < numbers[1] && numbers[1] < numbers[2] && numbers[2] < 10));
    for (const int64_t i : numbers) ++chosen[static_cast<size_t>(i)];
  }
  for (const double count : chosen) CHECK(std::abs(count / 5000 - 0.3) < 0.03);
  CHECK(chosen_numbers(5, 2, {1}) == Rows{0, 0, 0, 1, 1});
  CHECK(chosen_numbers(4, 4, {1}) == Rows{0, 1, 2, 3});
  CHECK_THROWS_WITH(chosen_numbers(1, 0, {1}), "chosen_numbers: 1 of 0");
}

TEST_CASE("k-means waits for the first training call with a token") {
  on_ranks([](Communicator& comm) {
    VectorQuantize quantize("vq", following(), {.key = {1}});
    const State before = state_of(quantize);
    quantize(Tensor({0, dim}), training(0), comm);
    quantize(tokens(0, 5), {}, comm);
    expect(state_of(quantize) == before && !quantize.codebook.has_started(), "it has begun");
    const bool last = number(comm) == comm.size() - 1;
    quantize(tokens(0, last ? 20 : 0), training(0), comm);
    expect(quantize.codebook.has_started(), "it has not begun");
    const State started = state_of(quantize);
    quantize(tokens(1, 20), training(1), comm);
    expect(state_of(quantize) == started, "it has begun again");
  });
}

TEST_CASE("dead codes are replaced by unmasked tokens of any rank, and equally for any division") {
  constexpr int64_t rows = 30;
  const auto revived = [&](int ranks, uint64_t key) {
    State codes;
    run_ranks(ranks, [&](Communicator& comm) {
      VectorQuantize quantize("vq", {.codebook = {.dim = dim, .codes = 8, .decay = 0, .dead_below = 1}}, {.key = {1}});
      quantize.codebook.codes.value = Tensor::full({8, dim}, 100);
      const auto [first, last] = part(rows, comm);
      const Tensor all = tokens(0, rows);
      quantize(all.slice(first, last), training(0), comm, Var(mask(0, rows).slice(first, last)));
      quantize.update(comm, {key});
      expect(quantize.codebook.replaced() == 7, "all but the one that is used");
      const std::vector<double> table = quantize.codebook.codes.value.values(), x = all.values();
      const std::vector<double> sums = quantize.codebook.sums.value.values();
      expect(std::equal(&sums[dim], &sums[0] + sums.size(), &table[dim]), "sums of one token");
      for (size_t k = 1; k < 8; ++k) {
        bool found = false;
        for (size_t i = 0; i < rows; ++i)
          found =
              found || (mask(0, rows).values()[i] == 1 && std::equal(&x[i * dim], &x[i * dim] + dim, &table[k * dim]));
        expect(found, "a code that is no token");
        expect(quantize.codebook.sizes.value.values()[k] == 1, "its size");
      }
      if (number(comm) == 0) codes = state_of(quantize);
    });
    return codes;
  };
  const State one = revived(1, 1);
  for (const int ranks : {2, 3, 5}) CHECK(revived(ranks, 1) == one);
  CHECK(revived(1, 2) != one);
}
