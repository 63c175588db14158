// SPDX-License-Identifier: Apache-2.0
// The verifier against batch normalization over all ranks: gradients by Weft's layers, right ones and with mistakes.
#include <fstream>
#include <mutex>

#include "tests/support/scratch_folder.h"
#include "tests/verify/planted.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/collectives/run_ranks.h"
#include "weft/data/files/safetensors.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;
using namespace weft::planted;
using verify::Outcome;
using verify::Verdict;

namespace {

using ByRank = std::vector<Tensor>;

// A layer of W ranks: its input, the gradient at its output, and its weight.
struct Problem {
  ByRank x, by_y;
  Tensor weight;

  Problem(const std::vector<int64_t>& rows, int64_t channels, DType dtype, uint64_t seed)
      : weight(Tensor::uniform({channels}, {seed, 1000}, 0.5, 2, dtype)) {
    for (size_t r = 0; r < rows.size(); ++r) {
      x.push_back(Tensor::uniform({rows[r], channels}, {seed, 2 * r}, -1 + static_cast<double>(r), 2, dtype));
      by_y.push_back(Tensor::uniform({rows[r], channels}, {seed, 2 * r + 1}, -1, 1, dtype));
    }
  }
  size_t ranks() const { return x.size(); }
  DType dtype() const { return weight.dtype(); }
  int64_t rows(size_t r) const { return x[r].shape()[0]; }
  Problem of_rank(size_t r) const {
    Problem own = *this;
    own.x = {x[r]};
    own.by_y = {by_y[r]};
    return own;
  }
};

ByRank by_layer(const Problem& problem) {
  ByRank result(problem.ranks());
  std::mutex mutex;
  run_ranks(static_cast<int>(problem.ranks()), [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank().value);
    DistributedBatchNorm layer("norm", problem.weight.size(), {.key = {}, .dtype = problem.dtype()}, comm);
    layer.gamma.value = problem.weight;
    Tape tape;
    const Var x = tape.watch(problem.x[r]);
    const Var y = layer(x, Pass{.training = true});
    const Tensor found = tape.gradient(sum(y * Var(problem.by_y[r])), {x})[0].value();
    const std::lock_guard lock(mutex);
    result[r] = found;
  });
  return result;
}

Verdict verdict_of(const Problem& problem, const ByRank& by_x) {
  verify::LayerEvidence layer;
  layer.name = "norm";
  for (size_t r = 0; r < problem.ranks(); ++r) {
    layer.x.push_back(matrix_of(problem.x[r]));
    layer.by_y.push_back(matrix_of(problem.by_y[r]));
    layer.by_x.push_back(matrix_of(by_x[r]));
  }
  layer.weight = matrix_of(problem.weight.reshape({1, problem.weight.size()}));
  layer.precision = dumped_precision(problem.dtype());
  return verify::verdict(layer);
}

std::string found(const Verdict& verdict) {
  if (!verdict.best) return "unknown";
  return verdict.best->signature->id + (verdict.best->variant.empty() ? "" : " (" + verdict.best->variant + ")");
}

void expect_found(const std::string& name, const Problem& problem, const ByRank& by_x) {
  const Verdict verdict = verdict_of(problem, by_x);
  INFO(name << " " << text(problem.dtype()) << " on " << problem.ranks() << " ranks");
  CHECK(found(verdict) == name);
  CHECK(verdict.outcome == Outcome::wrong);
  CHECK(verdict.same_as_best.empty());
  CHECK((verdict.runner_up && verdict.runner_up->error > verify::limit));
}

std::vector<int64_t> uneven(int ranks) {
  std::vector<int64_t> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(6 + (r * 3) % 5);
  return rows;
}

template <class Check> void for_each_problem(Check check) {
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f64, DType::f32}) check(Problem(uneven(ranks), 4, dtype, 5));
}

// Normalization by plain operations on one rank, where means over all rows are what `average` makes of values of the
// rank's own rows, and of all rows.
using Average = std::function<Var(const Var& own, const Var& all)>;
enum class Variance { of_squares, of_deviations };
ByRank composed(const Problem& problem, Variance how, const Average& average) {
  const Var all = concat(Vars(problem.x.begin(), problem.x.end()), 0), deviations = sub_along(all, mean(all, 0), -1);
  ByRank result;
  for (size_t r = 0; r < problem.ranks(); ++r) {
    Tape tape;
    const Var x = tape.watch(problem.x[r]);
    const Var mean_of_x = average(x, all), centered = sub_along(x, mean_of_x, -1);
    const Var variance = how == Variance::of_deviations ? average(square(centered), square(deviations))
                                                        : average(square(x), square(all)) - square(mean_of_x);
    const Var y = mul_along(centered, Var(problem.weight) * rsqrt(variance + 1e-5), -1);
    result.push_back(tape.gradient(sum(y * Var(problem.by_y[r])), {x})[0].value());
  }
  return result;
}
// The value of the mean over all rows, with the gradient of the rank's own rows only.
Var raw_all_reduce(const Var& own, const Var& all) {
  const Var sum_of_own = sum(own, 0);
  return (sum_of_own + (sum(all, 0) - Var(detach(sum_of_own).value()))) / static_cast<double>(all.shape()[0]);
}
Var constant(const Var&, const Var& all) { return mean(all, 0); }

// Of the right statistics, but with these sums of the backward: of g, and of g times the normalized input.
using Sums = std::function<Var(const std::vector<Var>& by_rank, size_t r)>;
ByRank with_sums(const Problem& problem, const Sums& sums) {
  const Var all = concat(Vars(problem.x.begin(), problem.x.end()), 0), mean_of_all = mean(all, 0);
  const Var by_sigma = rsqrt(mean(square(sub_along(all, mean_of_all, -1)), 0) + 1e-5);
  std::vector<Var> normalized, g, products;
  for (size_t r = 0; r < problem.ranks(); ++r) {
    normalized.push_back(mul_along(sub_along(Var(problem.x[r]), mean_of_all, -1), by_sigma, -1));
    g.push_back(mul_along(Var(problem.by_y[r]), Var(problem.weight), -1));
    products.push_back(normalized[r] * g[r]);
  }
  ByRank result;
  for (size_t r = 0; r < problem.ranks(); ++r) {
    const Var pulled = mul_along(normalized[r], sums(products, r), -1);
    result.push_back(mul_along(sub_along(g[r], sums(g, r), -1) - pulled, by_sigma, -1).value());
  }
  return result;
}
Var mean_of_own(const std::vector<Var>& by_rank, size_t r) { return mean(by_rank[r], 0); }
Var mean_of_means(const std::vector<Var>& by_rank, size_t) {
  return total(0, static_cast<int>(by_rank.size()), [&](int r) { return mean(by_rank[static_cast<size_t>(r)], 0); }) /
         static_cast<double>(by_rank.size());
}
Var mean_of_all(const std::vector<Var>& by_rank, size_t) { return mean(concat(by_rank, 0), 0); }

}  // namespace

TEST_CASE("correct batch normalization over all ranks is called correct, with uneven and empty ranks") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const auto& rows : {std::vector<int64_t>{5, 7, 4}, {6, 0, 3, 8, 2}}) {
      const Problem problem(rows, 4, dtype, 4);
      const Verdict verdict = verdict_of(problem, by_layer(problem));
      INFO(text(dtype) << " on " << rows.size() << " ranks, found " << found(verdict));
      CHECK(verdict.outcome == Outcome::correct);
      CHECK(verdict.blind_to.empty());
    }
}

TEST_CASE("200 random correct normalizations are called correct, and one per cent of one of them is found") {
  int wrong = 0, missed = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> rows;
    for (int r = 0; r < 1 + i % 5; ++r) rows.push_back(2 + (i + r * 7) % 6);
    const Problem problem(rows, 1 + i % 6, i % 2 ? DType::f32 : DType::f64, static_cast<uint64_t>(i));
    ByRank by_x = by_layer(problem);
    wrong += verdict_of(problem, by_x).outcome != Outcome::correct;
    by_x[0] = (Var(by_x[0]) * 1.01).value();
    missed += verdict_of(problem, by_x).outcome != Outcome::wrong;
  }
  CHECK(wrong == 0);
  CHECK(missed == 0);
}

TEST_CASE("every mistake of a batch normalization is named") {
  for_each_problem([](const Problem& problem) {
    ByRank local;
    for (size_t r = 0; r < problem.ranks(); ++r) local.push_back(by_layer(problem.of_rank(r))[0]);
    expect_found("S21a", problem, local);
    expect_found("S21b", problem, with_sums(problem, mean_of_own));
    expect_found("S10 (sums of squares)", problem, composed(problem, Variance::of_squares, raw_all_reduce));
    expect_found("S10 (sums of squared deviations)", problem,
                 composed(problem, Variance::of_deviations, raw_all_reduce));
    expect_found("S1 (statistics are constants)", problem, composed(problem, Variance::of_deviations, constant));
    expect_found("S12 (sums of the backward)", problem, with_sums(problem, mean_of_means));
    const double w = static_cast<double>(problem.ranks());
    expect_found("S6", problem, with_sums(problem, [&](auto& all, size_t r) { return mean_of_all(all, r) / w; }));
    expect_found("S7", problem, with_sums(problem, [&](auto& all, size_t r) { return mean_of_all(all, r) * w; }));
    CHECK(verdict_of(problem, with_sums(problem, mean_of_all)).outcome == Outcome::correct);
  });
}

TEST_CASE("statistics that are means of the means of uneven shards, or count padding, are named") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    // Rows that are repeated until all shards are equally long weigh what they do in a mean of means.
    const Problem right({6, 12, 4}, 4, dtype, 6);
    Problem repeated = right, padded = right;
    for (size_t r = 0; r < 3; ++r) {
      const int64_t times = 12 / right.rows(r);
      const auto copies = [&](const Tensor& x) { return concat(Vars(static_cast<size_t>(times), x), 0); };
      repeated.x[r] = copies(right.x[r]).value();
      repeated.by_y[r] = (copies(right.by_y[r]) / static_cast<double>(times)).value();
      const Var zeros = Tensor::zeros({12 - right.rows(r), 4}, dtype);
      padded.x[r] = concat({right.x[r], zeros}, 0).value();
      padded.by_y[r] = concat({right.by_y[r], zeros}, 0).value();
    }
    ByRank of_means = by_layer(repeated), of_padded = by_layer(padded);
    for (size_t r = 0; r < 3; ++r) {
      const int64_t rows = right.rows(r);
      of_means[r] = sum(reshape(of_means[r], {12 / rows, rows, 4}), 0).value();
      of_padded[r] = slice(of_padded[r], 0, 0, rows).value();
    }
    expect_found("S12 (statistics)", right, of_means);
    expect_found("S13", right, of_padded);
  }
}

TEST_CASE("a layer of a dump is found by the names of its tensors") {
  const ScratchFolder scratch;
  const Problem problem({5, 7, 4}, 4, DType::f32, 7);
  std::ofstream(scratch.path / "manifest.json") << R"({"weft_manifest": 1})";
  const auto write_of = [&](const Problem& of, const ByRank& by_x, const Tensor& epsilon, const char* left_out = "") {
    for (size_t r = 0; r < 3; ++r) {
      std::vector<NamedTensor> tensors = {{"batch_norm/encoder/bn1/x", of.x[r]},
                                          {"batch_norm/encoder/bn1/y.grad", of.by_y[r]},
                                          {"batch_norm/encoder/bn1/x.grad", by_x[r]},
                                          {"batch_norm/encoder/bn1/weight", of.weight},
                                          {"batch_norm/encoder/bn1/epsilon", epsilon}};
      std::erase_if(tensors, [&](const NamedTensor& each) { return each.name.ends_with(left_out) && *left_out; });
      write_safetensors(scratch.path / ("rank" + std::to_string(r) + ".safetensors"), tensors, {});
    }
    return verify::verdicts(verify::read_dump(scratch.path));
  };
  const auto write = [&](const ByRank& by_x, const Tensor& epsilon, const char* left_out = "") {
    return write_of(problem, by_x, epsilon, left_out);
  };
  const ByRank right = by_layer(problem), own_sums = with_sums(problem, mean_of_own);
  const std::vector<Verdict> all = write(own_sums, scalar(1e-5));
  REQUIRE(all.size() == 1);
  CHECK(all[0].subject == "layer 'encoder/bn1'");
  CHECK(found(all[0]) == "S21b");
  CHECK(found(write(right, scalar(1e-5))[0]) == "S0");
  CHECK(found(write(right, scalar(1e-1))[0]) == "unknown");
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(write(right, scalar(1e-5), "y.grad"), Contains("there is no 'batch_norm/encoder/bn1/y.grad'"));
  CHECK_THROWS_WITH(write(right, scalar(-1)), Contains("epsilon of 'encoder/bn1' is zero or more, not -1"));
  const Problem alone({0, 1, 0}, 4, DType::f32, 7);
  CHECK_THROWS_WITH(write_of(alone, alone.x, scalar(1e-5)),
                    Contains("the input of 'encoder/bn1' has 1 rows on all ranks; it needs at least 2"));
}
