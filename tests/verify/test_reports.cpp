// SPDX-License-Identifier: Apache-2.0
// Public reports of wrong gradients, as far as a reducer's dump shows them, and what is said of each. The numbers are
// those of a list of the years 2025 and 2026.
#include "tests/support/catch.h"
#include "tests/verify/planted_reduction.h"

using namespace weft;
using planted::Job;
using verify::Matrix;

namespace test_reports {

struct Report {
  std::string where;
  int passes;
  std::function<void(Job&)> plant;
  std::string said;
  bool in_bf16 = true;  // whether that can show it
};

// Job, rank, micro-batch: what its gradient weighs.
using Weight = std::function<double(const Job&, int rank, int pass)>;
std::function<void(Job&)> weighed(const Weight& weight) {
  return [=](Job& job) { job.reduce([&](int, int r, int k) { return weight(job, r, k); }); };
}

std::vector<Report> reports() {
  const auto in_rows = [](Job& job, int begin, int end, const std::function<Matrix(int)>& of) {
    for (int r = 0; r < job.ranks; ++r)
      job.reduced(r).middleCols(begin * job.columns, (end - begin) * job.columns) =
          of(r).middleCols(begin * job.columns, (end - begin) * job.columns);
  };
  const Weight own_token_mean = [](const Job& job, int r, int k) {
    return job.all(job.tokens) / (job.ranks * job.passes * job.tokens(r, k));
  };
  return {
      {"1, arXiv 2604.23747: the last micro-batch is left", 4, weighed([](auto&, int, int k) { return k == 3; }),
       "S15"},
      {"1, arXiv 2604.23747: those between are dropped", 4, weighed([](auto&, int, int k) { return k == 0 || k == 3; }),
       "weigh 1, 0, 0 and 1"},
      {"2, arXiv 2604.23747: mean of means of micro-batches", 2, weighed(own_token_mean),
       "all tokens / (ranks x micro-batches (or local world) x the micro-batch's tokens)"},
      {"3, verl 5625: own token mean times the share of samples", 2, weighed([](const Job& job, int r, int k) {
         return job.samples(r, k) * job.all(job.tokens) / (job.all(job.samples) * job.tokens(r, k));
       }),
       "all tokens x the micro-batch's samples / (the micro-batch's tokens x all samples)"},
      {"4, verl 3741: not divided by the batch", 1,
       weighed([](const Job& job, int, int) { return job.all(job.samples); }), "all samples"},
      {"5, verl 5614: the mean of each micro-batch's samples", 2, weighed([](const Job& job, int r, int k) {
         return job.all(job.samples) / (job.ranks * job.passes * job.samples(r, k));
       }),
       "all samples / (ranks x micro-batches (or local world) x the micro-batch's samples)"},
      {"6, 40, verl 3332, DeepSpeed 7773: not divided by the micro-batches", 4,
       weighed([](auto&, int, int) { return 4; }), "S16"},
      {"8, TRL 6024: divided by the tokens of generation", 2,
       weighed([](const Job& job, int, int) { return job.all(job.tokens) / job.all(job.generated); }),
       "all tokens / all generated tokens", false},
      {"9, 46, TRL 3231, prime-rl 1961: each rank by its own tokens", 1,
       weighed([](const Job& job, int r, int) { return job.all(job.tokens) / (job.ranks * job.own(job.tokens, r)); }),
       "all tokens / (ranks x own tokens)"},
      {"10, 42, AReaL 1273, ms-swift 10116: divided by the micro-batches once more", 4,
       weighed([](auto&, int, int) { return 0.25; }), "S16"},
      {"11, Automodel 1408: the auxiliary loss has no gradient", 1,
       [](Job& job) {
         job.use({1, 0});
       },
       "S32 (without head)"},
      {"11, Automodel 1412: the auxiliary loss is divided by the ranks", 1,
       [](Job& job) {
         job.use({1, 1.0 / job.ranks});
       },
       "the uses embedding and head weigh 1 and 1/"},
      {"16, 29, torchtitan 2972, Megatron-Bridge 4974: not divided by the tokens", 2,
       weighed([](const Job& job, int, int) { return job.all(job.tokens); }), "all tokens", false},
      {"17, torchtitan 1733: the buffer is divided in every pass", 4,
       weighed([](auto&, int, int k) { return std::pow(4, k - 3); }), "each is 1/4 times the one after it"},
      {"19, transformers 48687: slots of no expert collect into the last one's row", 1,
       [=](Job& job) { in_rows(job, 11, 12, [&](int r) { return Matrix(job.reduced(r) + job.local(0).reverse()); }); },
       "alone: all before and after are right"},
      {"21, transformers 45473: scores are paired with other experts", 1,
       [](Job& job) { job.rearrange([&](int64_t i) { return (i + 3 * job.columns) % (job.rows * job.columns); }); },
       "rows 0 to 8 have what belongs to rows 3 to 11"},
      {"23, transformers 46775: a count of all by the ranks that share it", 1,
       weighed([](auto&, int, int) { return 2; }), "local world"},
      {"24, 56, transformers 37474, Arctic 55: divided by the ranks once more", 1,
       weighed([](const Job& job, int, int) { return 1.0 / job.ranks; }), "S9"},
      {"25, 53, transformers 48792, espnet 6284: never reduced", 1,
       [](Job& job) { job.reduce([&](int q, int r, int) { return q == r ? job.ranks : 0; }); }, "S22"},
      {"26, kernels 1056: an uninitialised tail", 1, [](Job& job) { job.leave_unwritten(110); }, "S27"},
      {"30, Megatron 3159: divided by tokens that were not rolled", 1,
       weighed([](const Job& job, int, int) { return job.all(job.generated) / job.all(job.tokens); }),
       "all generated tokens / all tokens", false},
      {"32, ISEEKYAN 149: micro-batches accumulate in bf16", 4, [](Job& job) { job.accumulate_in(DType::bf16); },
       "S28 (in bf16, where gradients of micro-batches are accumulated)", false},
      {"35, pytorch 191926: divided along another dimension", 1,
       [](Job& job) { job.divide(0, [&](const Matrix& whole, int r) { return job.slice(whole, 1, r); }); },
       "divided along dimension 1 instead of 0"},
      {"38, xla 42481: sliced before the sum", 1, [](Job& job) { job.divide_before_sum(0); }, "sliced before the sum"},
      {"41, DeepSpeed 8213: a router's scores get nothing from the experts", 2,
       [](Job& job) {
         job.use({0, 1});
       },
       "S32 (without embedding)"},
      {"43, AReno 496: rows reduced twice", 1,
       [=](Job& job) { in_rows(job, 0, 6, [&](int r) { return Matrix(job.ranks * job.reduced(r)); }); },
       "rows 0 to 5 of 12: the reducer sums"},
      {"52, tt-metal 46548: samples of one rank, weights of the next", 1, weighed([](const Job& job, int r, int) {
         return job.own(job.tokens, (r + 1) % job.ranks) / job.own(job.tokens, r);
       }),
       "the next rank's tokens / own tokens"},
      {"54, bergson 334: the gradient of a gradient by the square of the ranks", 1,
       weighed([](const Job& job, int, int) { return job.ranks * job.ranks; }), ": ranks x ranks"},
      {"57, burn 3581: a sum for a mean", 1, weighed([](const Job& job, int, int) { return job.ranks; }), "S8"},
      {"58, Moonlight 27: a part is broadcast before it has come", 1,
       [=](Job& job) { in_rows(job, 8, 12, [&](int r) { return job.previous(r); }); },
       "rows 8 to 11 of 12: stale bucket"},
  };
}

std::string told(const verify::Verdict& verdict) {
  if (verdict.best)
    return verdict.outcome == verify::Outcome::correct ? "correct"
                                                       : verify::title(*verdict.best->signature, verdict.best->variant);
  std::string all = verdict.described ? verdict.described->text : "unknown";
  for (const std::string& remark : verdict.remarks) all += "; " + remark;
  return all;
}

TEST_CASE("public reports of wrong gradients, as a reducer's dump shows them, have their cause", "[test_reports]") {
  for (const Report& report : reports())
    for (const int ranks : {3, 5})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const uint64_t seed : {3, 6, 7}) {
          if (dtype == DType::bf16 && !report.in_bf16) continue;
          Job job{ranks, report.passes, dtype, seed};
          report.plant(job);
          const std::string found = told(job.verdict());
          INFO(report.where << " on " << ranks << " ranks in " << text(dtype) << ", seed " << seed << ": " << found);
          CHECK(found.find(report.said) != std::string::npos);
        }
}

TEST_CASE("a norm that is always one is told, as torchrec 3199 (49) reports it", "[test_reports]") {
  CHECK(Job{3, 1, DType::f32, 3}.verdict_of_norm([](const Matrix&) { return 1; }).described->text ==
        "the norm is 1, whatever the gradients are");
}

}  // namespace test_reports
