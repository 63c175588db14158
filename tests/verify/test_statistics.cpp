// SPDX-License-Identifier: Apache-2.0
// The verifier against losses of statistics over all ranks: gradients by Weft's engine, right ones and with mistakes.
#include <fstream>
#include <mutex>

#include "tests/support/scratch_folder.h"
#include "tests/verify/planted.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/data/files/safetensors.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/metrics/regression_metrics.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/statistics/barlow_twins.h"
#include "weft/losses/statistics/vicreg.h"

using namespace weft;
using namespace weft::planted;
using verify::Outcome;
using verify::Verdict;

namespace test_statistics {

using Inputs = std::vector<Var>;
using ByRank = std::vector<Tensor>;
using Seam = std::vector<ByRank>;  // gradients at the features, by tower and rank

// A loss of the whole batch with features of W ranks, as a framework would dump it.
struct Problem {
  std::string loss;
  std::vector<ByRank> towers;
  verify::Options options;

  Problem(const std::string& name, const std::vector<int64_t>& rows, int64_t width, DType dtype, uint64_t seed,
          const verify::Options& changed = {})
      : loss(name), options(verify::find_loss(name)->options) {
    for (const auto& [option, value] : changed) options[option] = value;
    for (uint64_t tower = 0; tower < verify::find_loss(name)->towers.size(); ++tower) {
      towers.emplace_back();
      for (size_t r = 0; r < rows.size(); ++r)
        towers.back().push_back(Tensor::uniform({rows[r], width}, {seed, 100 * r + tower}, -1, 1, dtype));
    }
  }
  size_t ranks() const { return towers[0].size(); }
  int64_t rows(size_t rank) const { return towers[0][rank].shape()[0]; }
  int64_t all_rows() const {
    int64_t all = 0;
    for (size_t r = 0; r < ranks(); ++r) all += rows(r);
    return all;
  }
  Problem with(const verify::Options& changed) const {
    Problem other = *this;
    for (const auto& [option, value] : changed) other.options[option] = value;
    return other;
  }
  Problem of_rank(size_t r) const {
    Problem other = *this;
    for (ByRank& tower : other.towers) tower = {tower[r]};
    return other;
  }
};

Var share_of(const Problem& problem, const Inputs& x, Communicator& comm) {
  const auto option = [&](const char* name) { return problem.options.at(name); };
  const auto once = [&](const Var& whole) { return keep_on(whole, {0}, comm); };
  if (problem.loss == "barlow_twins")
    return barlow_twins(x[0], x[1], {.lambda = option("lambda"), .epsilon = option("epsilon")}, comm);
  if (problem.loss == "vicreg")
    return vicreg(x[0], x[1],
                  {.lambda = option("lambda"),
                   .mu = option("mu"),
                   .nu = option("nu"),
                   .gamma = option("gamma"),
                   .epsilon = option("epsilon")},
                  comm);
  const auto flat = [](const Var& v) { return reshape(v, {v.size()}); };
  if (problem.loss == "rmse") return once(root_mean_squared_error(flat(x[0]), flat(x[1]), comm));
  if (problem.loss == "pearson") return once(1 - mean(pearson_correlation(x[0], x[1], comm)));
  LookupFree lookup_free({.bits = x[0].shape()[1],
                          .scale = option("scale"),
                          .inverse_temperature = option("inverse_temperature"),
                          .entropy_weight = option("entropy_weight"),
                          .diversity = option("diversity"),
                          .commitment_weight = option("commitment_weight")});
  return lookup_free(x[0], Pass{.training = true}, comm).loss;
}

// The derivative of the loss of the whole batch, by `share` of each rank.
Seam gradients(const Problem& problem, const std::function<Var(const Inputs&, Communicator&)>& share) {
  Seam result(problem.towers.size(), ByRank(problem.ranks()));
  std::mutex mutex;
  run_ranks(static_cast<int>(problem.ranks()), [&](Communicator& comm) {
    const auto r = static_cast<size_t>(comm.rank().value);
    Tape tape;
    Inputs x;
    for (const ByRank& tower : problem.towers) x.push_back(tape.watch(tower[r]));
    const Inputs found = tape.gradient(share(x, comm), x);
    const std::lock_guard lock(mutex);
    for (size_t tower = 0; tower < x.size(); ++tower) result[tower][r] = found[tower].value();
  });
  return result;
}
Seam gradients(const Problem& problem) {
  return gradients(problem, [&](const Inputs& x, Communicator& comm) { return share_of(problem, x, comm); });
}

Seam combined(double a, const Seam& x, double b, const Seam& y) {
  Seam result = x;
  for (size_t tower = 0; tower < x.size(); ++tower)
    for (size_t r = 0; r < x[tower].size(); ++r)
      result[tower][r] = (Var(x[tower][r]) * a + Var(y[tower][r]) * b).value();
  return result;
}
Seam scaled(double a, const Seam& x) { return combined(a, x, 0, x); }

// What a framework whose reducer averages dumps, where the losses of its ranks have W times these gradients.
Verdict verdict_of(const Problem& problem, const Seam& gradients) {
  verify::SeamEvidence seam;
  seam.loss = verify::find_loss(problem.loss);
  seam.batch.options = problem.options;
  for (const ByRank& tower : problem.towers) {
    seam.batch.features.emplace_back();
    for (const Tensor& x : tower) seam.batch.features.back().push_back(matrix_of(x));
  }
  const Seam dumped = scaled(static_cast<double>(problem.ranks()), gradients);
  for (const ByRank& tower : dumped) {
    seam.gradients.emplace_back();
    for (const Tensor& x : tower) seam.gradients.back().push_back(matrix_of(x));
  }
  seam.precision = dumped_precision(problem.towers[0][0].dtype());
  verify::Dump dump;
  dump.ranks = static_cast<int>(problem.ranks());
  return verify::verdict(seam, dump);
}

std::string found(const Verdict& verdict) {
  if (!verdict.best) return "unknown";
  return verdict.best->signature->id + (verdict.best->variant.empty() ? "" : " (" + verdict.best->variant + ")");
}

const char* names[] = {"barlow_twins", "vicreg", "lfq", "rmse", "pearson"};
// Of lookup-free quantization, so soft that every term has a gradient.
const verify::Options soft = {{"inverse_temperature", 0.3}, {"diversity", 1.3}};

Problem problem(const std::string& loss, const std::vector<int64_t>& rows, DType dtype, uint64_t seed = 3) {
  return Problem(loss, rows, 4, dtype, seed, loss == "lfq" ? soft : verify::Options());
}

std::vector<int64_t> uneven(int ranks) {
  std::vector<int64_t> rows;
  for (int r = 0; r < ranks; ++r) rows.push_back(6 + (r * 3) % 5);
  return rows;
}

template <class Check> void for_each_case(Check check) {
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f64, DType::f32}) {
      INFO(text(dtype) << " on " << ranks << " ranks");
      check(ranks, dtype);
    }
}

void expect_found(const std::string& name, const Problem& problem, const Seam& gradients,
                  const std::vector<std::string>& same = {}) {
  const Verdict verdict = verdict_of(problem, gradients);
  INFO(problem.loss << ": " << name);
  CHECK(found(verdict) == name);
  CHECK(verdict.outcome == Outcome::wrong);
  CHECK(verdict.same_as_best == same);
  CHECK((verdict.runner_up && verdict.runner_up->error > verify::limit));
}

TEST_CASE("correct gradients of losses of statistics are called correct, with uneven and empty ranks") {
  for (const char* loss : names)
    for (const DType dtype : {DType::f64, DType::f32})
      for (const auto& rows : {std::vector<int64_t>{5, 7, 4}, {6, 0, 3, 8, 2}}) {
        const Problem right = problem(loss, rows, dtype);
        const Verdict verdict = verdict_of(right, gradients(right));
        INFO(loss << " " << text(dtype) << " on " << rows.size() << " ranks, found " << found(verdict));
        CHECK(verdict.outcome == Outcome::correct);
        CHECK(verdict.blind_to.empty());
      }
}

TEST_CASE("400 random correct losses of statistics are called correct, and one per cent of one of them is found") {
  int wrong = 0, missed = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<int64_t> rows;
    for (int r = 0; r < 1 + i / 5 % 5; ++r) rows.push_back(3 + (i + r * 7) % 6);
    const Problem right(names[i % 5], rows, 2 + i % 4, i % 2 ? DType::f32 : DType::f64, static_cast<uint64_t>(i),
                        names[i % 5] == std::string("lfq") && i % 3 ? soft : verify::Options());
    Seam dumped = gradients(right);
    wrong += verdict_of(right, dumped).outcome != Outcome::correct;
    dumped[0][0] = (Var(dumped[0][0]) * 1.01).value();
    missed += verdict_of(right, dumped).outcome != Outcome::wrong;
  }
  CHECK(wrong == 0);
  CHECK(missed == 0);
}

TEST_CASE("a factor of the whole loss is named, and what it cannot be told from: Lightly 1977") {
  for_each_case([](int ranks, DType dtype) {
    const double w = ranks;
    for (const char* loss : names) {
      const Problem right = problem(loss, uneven(ranks), dtype);
      const Seam truth = gradients(right);
      const std::string term = loss == std::string("rmse") ? "root mean square" : "correlation";
      const bool has_rows = loss == std::string("lfq") || loss == std::string("vicreg");
      const std::string whole = "S3 (every rank computes the whole loss)";
      if (has_rows) {
        expect_found(whole, right, scaled(1 / w, truth), {"S9"});
        expect_found("S8", right, scaled(w, truth));
      } else {
        expect_found(whole, right, scaled(1 / w, truth), {"S9", "S10 (" + term + ")"});
        expect_found("S8", right, scaled(w, truth), {"S7 (" + term + ")"});
      }
      expect_found("S33 (multiplied by the number of samples)", right,
                   scaled(static_cast<double>(right.all_rows()), truth));
      expect_found("S33 (by the number of features)", right, scaled(0.25, truth));
    }
  });
}

TEST_CASE("a mistake in one statistic of VICReg is named, and so is the term") {
  for_each_case([](int ranks, DType dtype) {
    const double w = ranks;
    const Problem right = problem("vicreg", uneven(ranks), dtype);
    const Seam truth = gradients(right);
    const Seam variance = gradients(right.with({{"lambda", 0}, {"nu", 0}}));
    const Seam covariance = gradients(right.with({{"lambda", 0}, {"mu", 0}}));
    const Seam both = combined(1, variance, 1, covariance);
    expect_found("S10 (variance)", right, combined(1, truth, 1 / w - 1, variance));
    expect_found("S10 (covariance)", right, combined(1, truth, 1 / w - 1, covariance));
    expect_found("S10 (variance, covariance)", right, combined(1, truth, 1 / w - 1, both));
    expect_found("S1 (covariance)", right, combined(1, truth, -1, covariance));
    expect_found("S7 (variance)", right, combined(1, truth, w - 1, variance));

    const Problem even = problem("vicreg", std::vector<int64_t>(static_cast<size_t>(ranks), 5), dtype);
    const Seam of_covariance = gradients(even.with({{"lambda", 0}, {"mu", 0}}));
    Seam slices = of_covariance;
    for (ByRank& tower : slices) {
      Var sum = tower[0];
      for (size_t r = 1; r < tower.size(); ++r) sum = sum + Var(tower[r]);
      tower.assign(tower.size(), (sum / w).value());
    }
    expect_found("S5 (covariance)", even, combined(1, combined(1, gradients(even), -1, of_covariance), 1, slices));
  });
}

TEST_CASE("statistics of each rank's own are named") {
  for_each_case([](int ranks, DType dtype) {
    for (const char* loss : names) {
      const Problem right = problem(loss, uneven(ranks), dtype);
      Seam own(right.towers.size());
      for (size_t r = 0; r < right.ranks(); ++r) {
        const Seam alone = gradients(right.of_rank(r));
        for (size_t tower = 0; tower < own.size(); ++tower) own[tower].push_back(alone[tower][0]);
      }
      expect_found("S12 (each rank has statistics of its own)", right, scaled(1.0 / ranks, own));
    }
  });
}

TEST_CASE("means of the means of uneven shards, and counted padding, are named") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (const char* loss : {"barlow_twins", "lfq", "rmse", "pearson"}) {
      // Rows that are repeated until all shards are equally long weigh what they do in a mean of means.
      const Problem right = problem(loss, {6, 12, 4}, dtype);
      Problem repeated = right, padded = right;
      for (size_t tower = 0; tower < right.towers.size(); ++tower)
        for (size_t r = 0; r < 3; ++r) {
          const Vars copies(static_cast<size_t>(12 / right.rows(r)), right.towers[tower][r]);
          repeated.towers[tower][r] = concat(copies, 0).value();
          const Tensor zeros = Tensor::zeros({12 - right.rows(r), 4}, dtype);
          padded.towers[tower][r] = concat({right.towers[tower][r], zeros}, 0).value();
        }
      Seam of_means = gradients(repeated), of_padded = gradients(padded);
      for (size_t tower = 0; tower < right.towers.size(); ++tower)
        for (size_t r = 0; r < 3; ++r) {
          const int64_t rows = right.rows(r);
          of_means[tower][r] = sum(reshape(of_means[tower][r], {12 / rows, rows, 4}), 0).value();
          of_padded[tower][r] = slice(of_padded[tower][r], 0, 0, rows).value();
        }
      expect_found("S12", right, of_means);
      expect_found("S13", right, of_padded);
    }
}

// Lookup-free quantization by plain operations, without commitment: the loss of a rank, divided by W. `averaged` makes
// the mean assignment of all ranks' samples out of the sum over the own ones.
using Averaged = std::function<Var(const Var& sum_of_own, const Problem&, Communicator&)>;
Var entropy_of(const Var& p) { return -sum(p * log(p)); }
Var composed_lfq(const Problem& problem, const Var& x, Communicator& comm, const Averaged& averaged) {
  const int64_t bits = x.shape()[1];
  Tensor corners({bits, int64_t{1} << bits}, DType::f64);
  for (int64_t j = 0; j < bits; ++j)
    for (int64_t k = 0; k < int64_t{1} << bits; ++k) corners.mutate<double>()[(j << bits) + k] = k >> j & 1 ? 1 : -1;
  const Var p = softmax(matmul(x, corners.to(x.dtype())) * (2 * problem.options.at("inverse_temperature")));
  const Var of_samples = entropy_of(p) / static_cast<double>(problem.all_rows());
  const Var of_batch = entropy_of(averaged(sum(p, 0), problem, comm)) / comm.size();
  return (of_samples - of_batch * problem.options.at("diversity")) * problem.options.at("entropy_weight");
}

Var raw_all_reduce(const Var& sum_of_own, const Problem& problem, Communicator& comm) {
  const Tensor own = detach(sum_of_own).value();
  return (sum_of_own + (Var(comm.all_reduce(own)) - Var(own))) / static_cast<double>(problem.all_rows());
}
Var result_discarded(const Var& sum_of_own, const Problem& problem, Communicator& comm) {
  const auto r = static_cast<size_t>(comm.rank().value);
  return sum_of_own / static_cast<double>(comm.size() * problem.rows(r));
}

TEST_CASE("all-reduces of means and of moments whose results are discarded are named in a correlation") {
  for_each_case([](int ranks, DType dtype) {
    const Problem right = problem("pearson", uneven(ranks), dtype);
    expect_found("S11 (correlation)", right, gradients(right, [&](const Inputs& x, Communicator& comm) {
                   const auto average = [&](const Var& own) { return result_discarded(sum(own, 0), right, comm); };
                   const Var a = sub_along(x[0], average(x[0]), -1), b = sub_along(x[1], average(x[1]), -1);
                   const Var correlations = average(a * b) * rsqrt(average(square(a)) * average(square(b)));
                   return (1 - mean(correlations)) / comm.size();
                 }));
  });
}

TEST_CASE("a raw all-reduce, and one whose result is discarded, are named in lookup-free quantization") {
  for_each_case([](int ranks, DType dtype) {
    const Problem right = problem("lfq", uneven(ranks), dtype).with({{"commitment_weight", 0}});
    const auto by = [&](const Averaged& averaged) {
      return gradients(right,
                       [&](const Inputs& x, Communicator& comm) { return composed_lfq(right, x[0], comm, averaged); });
    };
    expect_found("S10 (batch entropy)", right, by(raw_all_reduce));
    expect_found("S11 (batch entropy)", right, by(result_discarded));
  });
}

TEST_CASE("targets need no gradient, and of a vector each element is a sample") {
  const ScratchFolder scratch;
  const Problem right("rmse", {5, 7, 4}, 1, DType::f32, 8);
  const Seam dumped = scaled(3, gradients(right));
  std::vector<std::filesystem::path> files;
  for (size_t r = 0; r < 3; ++r) {
    const auto flat = [&](const Tensor& x) { return x.reshape({x.size()}); };
    files.push_back(scratch.path / ("rank" + std::to_string(r) + ".safetensors"));
    write_safetensors(files.back(),
                      std::vector<NamedTensor>{{"predictions", flat(right.towers[0][r])},
                                               {"predictions.grad", flat(dumped[0][r])},
                                               {"targets", flat(right.towers[1][r])}},
                      {});
  }
  std::ofstream(scratch.path / "manifest.json") << R"({"weft_manifest": 1, "loss": {"name": "rmse"}})";
  for (const verify::Dump& dump :
       {verify::read_dump(scratch.path), verify::read_dump({"rmse", files, verify::Reducer::mean, {}})}) {
    const std::vector<Verdict> all = verify::verdicts(dump);
    REQUIRE(all.size() == 1);
    CHECK(all[0].outcome == Outcome::correct);
    CHECK(all[0].table.size() == 3);
    CHECK(dump.rows == std::vector<int64_t>{5, 7, 4});
  }
  using Catch::Matchers::Contains;
  const auto read = [&](const char* loss, const verify::Options& options) {
    return verify::read_dump({loss, files, verify::Reducer::mean, options});
  };
  CHECK_THROWS_WITH(read("vicreg", {}), Contains("there are no features 'first' of vicreg"));
  CHECK_THROWS_WITH(read("rmse", {{"epsilon", 1}}), Contains("rmse has no option 'epsilon'"));
  CHECK_THROWS_WITH(read("barlow_twins", {{"epsilon", -1}}), Contains("epsilon is zero or more, not -1"));
  files.resize(1);
  const std::vector<NamedTensor> single = {
      {"predictions", Tensor::zeros({1})}, {"predictions.grad", Tensor::zeros({1})}, {"targets", Tensor::zeros({1})}};
  write_safetensors(files[0], single, {});
  CHECK_THROWS_WITH(read("pearson", {}), Contains("the batch of all ranks has 1 rows; pearson needs at least 2"));
}

TEST_CASE("lookup-free quantization of more codes than fit is refused") {
  const Problem large("lfq", {3, 3, 3}, 23, DType::f32, 1);
  CHECK_THROWS_WITH(verdict_of(large, Seam{large.towers}),
                    Catch::Matchers::Contains("9 samples of 23 bits have more than 2^22 assignments"));
}

}  // namespace test_statistics
