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
  // Gradients of gradients, which go through the reducer twice.
  all.push_back({"second order",
                 "the mean where the sum belongs",
                 1,
                 weights([](const Job& job, int, int) { return 1.0 / job.ranks; }),
                 {"S9"}});
  all.push_back({"second order",
                 "the mean in both passes",
                 1,
                 weights([](const Job& job, int, int) { return 1.0 / (job.ranks * job.ranks); }),
                 {": 1 / (ranks x ranks)"}});
  all.push_back({"second order",
                 "the sum in both passes",
                 2,
                 weights([](const Job& job, int, int) { return double(job.ranks * job.ranks); }),
                 {": ranks x ranks"}});
  all.push_back({"second order",
                 "a penalty on the gradient counts every rank",
                 1,
                 [](Job& job) {
                   job.use({1, double(job.ranks)});
                 },
                 {"weigh 1 and 3 times", "weigh 1 and 5 times"}});
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
                 {"all tokens x the micro-batch's samples / (the micro-batch's tokens x all samples)"}});
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
  all.push_back({"weights",
                 "weighed by the next rank's tokens",
                 1,
                 weights([](const Job& job, int r, int) {
                   return job.own(job.tokens, (r + 1) % job.ranks) / job.own(job.tokens, r);
                 }),
                 {"the next rank's tokens / own tokens"}});
  add_mistakes_of_place(all);
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
                 {"clipped to 11 before", "clipped to 11.1 before", "clipped to 11.7 before", "clipped to 16.3 before",
                  "clipped to 16.4 before", "clipped to 16.5 before", "clipped to 16.7 before"}});
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
