// SPDX-License-Identifier: Apache-2.0
// Mistakes of a reducer that have no name of their own, planted in drawn gradients of three and five ranks with
// different numbers of tokens: what is told of each, and that correct reductions are told nothing.
#include "tests/support/catch.h"
#include "tests/verify/mistakes_without_a_name.h"
#include "tests/verify/said.h"

using namespace weft;
using planted::Job;
using verify::Matrix;
using verify::Outcome;

namespace test_explain {

std::vector<Job> jobs(int passes) {
  std::vector<Job> all;
  for (const int ranks : {3, 5})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (uint64_t seed = 1; seed <= 3; ++seed) all.push_back(Job{ranks, passes, dtype, seed});
  return all;
}

TEST_CASE("correct reductions are called correct, and nothing is told of them", "[test_explain]") {
  int wrong = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    Job job{i % 2 ? 3 : 5,
            1 + static_cast<int>(i % 4),
            i % 3 ? DType::f32 : DType::bf16,
            i,
            1 + static_cast<int64_t>(i % 17),
            1 + static_cast<int64_t>(i % 13)};
    for (const verify::Verdict& each : job.verdicts()) wrong += said(each) != "correct";
  }
  CHECK(wrong == 0);
}

TEST_CASE("mistakes without a signature are described", "[test_explain]") {
  int all = 0, right = 0, silent = 0, misnamed = 0;
  for (const planted::Mistake& mistake : planted::mistakes_without_a_name())
    for (Job& job : jobs(mistake.passes)) {
      if (job.dtype == DType::bf16 && !mistake.in_bf16) continue;
      mistake.plant(job);
      const std::string found = said(job.verdict());
      const bool as_it_is = std::ranges::any_of(
          mistake.said, [&](const std::string& words) { return found.find(words) != std::string::npos; });
      ++all, right += as_it_is, silent += found == "correct", misnamed += !as_it_is && found != "unknown";
      if (!as_it_is)
        UNSCOPED_INFO(mistake.kind << ", " << mistake.name << " on " << job.ranks << " in " << text(job.dtype) << ": "
                                   << found);
    }
  CHECK(right >= 0.98 * all);
  CHECK(silent == 0);
  CHECK(misnamed == 0);
}

TEST_CASE("another norm of all gradients is told", "[test_explain]") {
  for (const Job& job : jobs(1)) {
    const auto of = [&](auto norm) { return said(job.verdict_of_norm(norm)); };
    CHECK(of([](const Matrix& x) { return x.norm(); }) == "correct");
    CHECK(of([](const Matrix& x) { return x.lpNorm<1>(); }) == "the norm is the norm p = 1");
    CHECK(of([](const Matrix& x) { return std::cbrt(x.cwiseAbs().array().cube().sum()); }) ==
          "the norm is the norm p = 3");
    CHECK(of([](const Matrix& x) { return x.lpNorm<Eigen::Infinity>(); }) == "the norm is the largest element");
    CHECK(of([](const Matrix&) { return 1; }) == "the norm is 1, whatever the gradients are");
    CHECK(of([](const Matrix& x) { return 0.9 * x.norm(); }) == "unknown");
  }
}

}  // namespace test_explain
