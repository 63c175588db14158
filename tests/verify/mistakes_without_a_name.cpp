// SPDX-License-Identifier: Apache-2.0
#include "tests/verify/mistakes_without_a_name.h"

namespace weft::planted {

using verify::Matrix;

// A table, a mistake a row.
std::vector<Mistake> mistakes_without_a_name() {
  std::vector<Mistake> all;
  const auto factor = [](double value) { return [=](Job& job) { job.reduce([=](int, int, int) { return value; }); }; };
  const auto weights = [](std::function<double(const Job&, int rank, int pass)> weight) {
    return [=](Job& job) { job.reduce([&](int, int r, int k) { return weight(job, r, k); }); };
  };
  // Factors.
  all.push_back(
      {"factor", "divided by the ranks of a node", 1, factor(0.5), {"1/2 times what they should: 1 / local world"}});
  all.push_back({"factor", "the scale of a loss stays", 2, factor(1024), {"2^10, such as the scale of a loss"}});
  all.push_back({"factor",
                 "multiplied twice by the ranks",
                 1,
                 weights([](const Job& job, int, int) { return double(job.ranks * job.ranks); }),
                 {"ranks x ranks"}});
  all.push_back({"factor",
                 "divided by ranks and micro-batches",
                 2,
                 weights([](const Job& job, int, int) { return 1.0 / (job.ranks * 2); }),
                 {"1 / (ranks x micro-batches (or local world))"}});
  all.push_back({"factor",
                 "divided by the tokens of generation",
                 2,
                 weights([](const Job& job, int, int) { return job.all(job.tokens) / job.all(job.generated); }),
                 {"all tokens / all generated tokens"},
                 false});
  // Weights.
  all.push_back(
      {"weights",
       "mean of means of tokens",
       1,
       weights([](const Job& job, int r, int) { return job.all(job.tokens) / (job.ranks * job.own(job.tokens, r)); }),
       {"all tokens / (ranks x own tokens)"}});
  all.push_back(
      {"weights",
       "mean of means of micro-batches",
       3,
       weights([](const Job& job, int r, int k) { return job.all(job.tokens) / (job.ranks * 3 * job.tokens(r, k)); }),
       {"all tokens / (ranks x micro-batches x the micro-batch's tokens)",
        "all tokens / (ranks (or micro-batches) x ranks (or micro-batches) x the micro-batch's tokens)"}});
  all.push_back({"weights",
                 "local tokens over tokens",
                 1,
                 weights([](const Job& job, int r, int) { return job.own(job.tokens, r) / job.all(job.tokens); }),
                 {"own tokens / all tokens"}});
  all.push_back({"weights",
                 "own mean of tokens times the share of samples",
                 2,
                 weights([](const Job& job, int r, int k) {
                   return job.samples(r, k) * job.all(job.tokens) / (job.all(job.samples) * job.tokens(r, k));
                 }),
                 {"the micro-batch's samples", "1/"}});
  all.push_back({"weights",
                 "one rank weighs half",
                 1,
                 weights([](const Job&, int r, int) { return r == 2 ? 0.5 : 1; }),
                 {"1, 1 and 1/2 times", "1, 1, 1/2, 1 and 1 times"}});
  all.push_back({"weights",
                 "two ranks weigh less, to different lengths",
                 1,
                 weights([](const Job&, int r, int) { return r == 0   ? 0.5
                                                             : r == 1 ? 0.75
                                                                      : 1; }),
                 {"weigh 1/2, 3/4 and 1 times", "weigh 1/2, 3/4, 1, 1 and 1 times"}});
  // Series and subsets.
  all.push_back({"series",
                 "a moving average",
                 4,
                 weights([](const Job&, int, int k) { return std::pow(0.5, 3 - k); }),
                 {"each is 1/2 times the one after it"}});
  all.push_back({"series",
                 "a ratio of three tenths",
                 3,
                 weights([](const Job&, int, int k) { return std::pow(0.3, k); }),
                 {"each is 10/3 times the one after it", "weigh 1, 3/10"}});
  all.push_back({"series",
                 "first and last micro-batch",
                 4,
                 weights([](const Job&, int, int k) { return k == 0 || k == 3; }),
                 {"weigh 1, 0, 0 and 1 times"}});
  all.push_back({"series",
                 "without the second micro-batch",
                 3,
                 weights([](const Job&, int, int k) { return k != 1; }),
                 {"weigh 1, 0 and 1 times"}});
  // Groups of ranks.
  const auto grouped = [](std::function<int(int)> group) {
    return [=](Job& job) {
      job.reduce([&](int to, int from, int) {
        int size = 0;
        for (int r = 0; r < job.ranks; ++r) size += group(r) == group(to);
        return group(to) == group(from) ? double(job.ranks) / size : 0;
      });
    };
  };
  all.push_back(
      {"groups", "two nodes", 1, grouped([](int r) { return r / 2; }), {"in groups of their own: ranks 0, 1; 2"}});
  all.push_back({"groups",
                 "even and odd ranks",
                 2,
                 grouped([](int r) { return r % 2; }),
                 {"in groups of their own: ranks 0, 2"}});
  all.push_back({"groups",
                 "the first rank alone",
                 1,
                 grouped([](int r) { return r == 0; }),
                 {"in groups of their own: ranks 0; 1, 2"}});
  // Orders.
  all.push_back({"orders",
                 "rows reversed",
                 1,
                 [](Job& job) {
                   job.rearrange(
                       [&](int64_t i) { return (job.rows - 1 - i / job.columns) * job.columns + i % job.columns; });
                 },
                 {"the rows are in reverse order"}});
  all.push_back({"orders",
                 "elements reversed",
                 1,
                 [](Job& job) { job.rearrange([&](int64_t i) { return job.rows * job.columns - 1 - i; }); },
                 {"the elements are in reverse order"}});
  all.push_back({"orders",
                 "halves exchanged",
                 1,
                 [](Job& job) {
                   job.rearrange(
                       [&](int64_t i) { return (i + job.rows * job.columns / 2) % (job.rows * job.columns); });
                 },
                 {"rows 0 to 5 have what belongs to rows 6 to 11"}});
  all.push_back({"orders",
                 "another parameter's gradient",
                 1,
                 [](Job& job) { job.exchange([](int) { return true; }); },
                 {"all ranks have the gradient of 'other'"}});
  all.push_back({"orders",
                 "one rank fills buckets in another order",
                 1,
                 [](Job& job) { job.exchange([](int r) { return r == 1; }); },
                 {"of rank 1 it has the gradient of 'other'"}});
  all.push_back({"orders",
                 "weighed by the next rank's tokens",
                 1,
                 weights([](const Job& job, int r, int) {
                   return job.own(job.tokens, (r + 1) % job.ranks) / job.own(job.tokens, r);
                 }),
                 {"the next rank's tokens / own tokens"}});
  all.push_back({"orders",
                 "slices of the next rank",
                 1,
                 [](Job& job) {
                   job.divide(0, [&](const Matrix& whole, int r) { return job.slice(whole, 0, (r + 1) % job.ranks); });
                 },
                 {"the slice of the rank 1 after it"}});
  // Parts.
  const auto in_part = [](int64_t begin, int64_t end, std::function<Matrix(const Job&, int)> of) {
    return [=](Job& job) {
      for (int r = 0; r < job.ranks; ++r)
        job.reduced(r).middleCols(begin, end - begin) = of(job, r).middleCols(begin, end - begin);
    };
  };
  all.push_back({"parts",
                 "rows are zero",
                 1,
                 in_part(30, 60, [](const Job& job, int r) { return Matrix(0 * job.reduced(r)); }),
                 {"rows 3 to 5 of 12: lost"}});
  all.push_back({"parts",
                 "half of a buffer is not reduced",
                 1,
                 in_part(60, 120, [](const Job& job, int r) { return job.local(r); }),
                 {"rows 6 to 11 of 12: bucket never reduced"}});
  all.push_back({"parts",
                 "rows reduced twice, the last element of which is zero",
                 1,
                 [](Job& job) {
                   job.silence(59);
                   for (int r = 0; r < job.ranks; ++r) job.reduced(r).middleCols(30, 30) *= job.ranks;
                 },
                 {"rows 3 to 5 of 12: the reducer sums instead"}});
  all.push_back({"parts",
                 "rows reduced twice",
                 1,
                 in_part(0, 40, [](const Job& job, int r) { return Matrix(job.ranks * job.reduced(r)); }),
                 {"rows 0 to 3 of 12: the reducer sums instead"}});
  all.push_back({"parts",
                 "a shard is stale",
                 1,
                 in_part(43, 77, [](const Job& job, int r) { return job.previous(r); }),
                 {": stale bucket"}});
  all.push_back(
      {"parts",
       "elements without a rank",
       1,
       in_part(17, 44, [](const Job& job, int r) { return Matrix(job.reduced(r) - job.local(1) / job.ranks); }),
       {": read before completion"}});
  all.push_back({"parts",
                 "rows weigh 3/2",
                 1,
                 in_part(20, 50, [](const Job& job, int r) { return Matrix(1.5 * job.reduced(r)); }),
                 {"rows 2 to 4 of 12: all gradients weigh 3/2"}});
  all.push_back({"parts",
                 "a buffer is shifted by three",
                 1,
                 [](Job& job) { job.rearrange([](int64_t i) { return i < 50 ? i : std::min<int64_t>(i + 3, 119); }); },
                 {"has what belongs to", "have what belongs to"}});
  // Dimensions.
  all.push_back({"dimensions",
                 "transposed",
                 1,
                 [](Job& job) { job.rearrange([&](int64_t i) { return i % job.rows * job.columns + i / job.rows; }); },
                 {"transposed"}});
  all.push_back({"dimensions",
                 "divided along columns",
                 1,
                 [](Job& job) { job.divide(0, [&](const Matrix& whole, int r) { return job.slice(whole, 1, r); }); },
                 {"divided along dimension 1 instead of 0"}});
  all.push_back({"dimensions",
                 "sliced before the sum",
                 1,
                 [](Job& job) { job.divide_before_sum(0); },
                 {"sliced before the sum"}});
  all.push_back({"dimensions",
                 "boundaries off by one",
                 1,
                 [](Job& job) { job.divide(1, [&](const Matrix& whole, int r) { return job.slice(whole, 1, r, 1); }); },
                 {"shifted by 1"}});
  // Uses.
  all.push_back({"uses",
                 "one counts twice",
                 1,
                 [](Job& job) {
                   job.use({2, 1});
                 },
                 {"the uses embedding and head weigh 2 and 1 times"}});
  all.push_back({"uses",
                 "one is divided by the ranks",
                 1,
                 [](Job& job) {
                   job.use({1.0 / job.ranks, 1});
                 },
                 {"weigh 1/3 and 1 times", "weigh 1/5 and 1 times"}});
  all.push_back({"uses", "both are scaled", 1, [](Job& job) { job.use({0.5, 4}); }, {"weigh 1/2 and 4 times"}});
  // Clipping.
  const auto clipped = [](std::function<double(const Matrix&)> power, std::function<double(double)> root) {
    return [=](Job& job) { job.clip(power, root); };
  };
  all.push_back({"clipping",
                 "by the norm",
                 1,
                 clipped([](const Matrix& x) { return x.squaredNorm(); }, [](double x) { return std::sqrt(x); }),
                 {"before the reduction"}});
  all.push_back({"clipping",
                 "by the sum of sizes",
                 1,
                 clipped([](const Matrix& x) { return x.lpNorm<1>(); }, [](double x) { return x; }),
                 {"by the norm p = 1 before"}});
  all.push_back({"clipping",
                 "by the third norm",
                 2,
                 clipped([](const Matrix& x) { return x.cwiseAbs().array().cube().sum(); },
                         [](double x) { return std::cbrt(x); }),
                 {"by the norm p = 3 before"}});
  // Precision, of gradients in f32.
  all.push_back({"precision",
                 "sent in bf16",
                 1,
                 [](Job& job) { job.send_in(DType::bf16); },
                 {"S28 (in bf16, where each rank's gradient is sent)"},
                 false});
  all.push_back({"precision",
                 "accumulated in bf16",
                 4,
                 [](Job& job) { job.accumulate_in(DType::bf16); },
                 {"S28 (in bf16, where gradients of micro-batches are accumulated)"},
                 false});
  all.push_back({"precision",
                 "stored in bf16",
                 2,
                 [](Job& job) { job.store_in(DType::bf16); },
                 {"S28 (in bf16, where the result is stored)"},
                 false});
  return all;
}

}  // namespace weft::planted
