// SPDX-License-Identifier: Apache-2.0
// Of mistakes of a reducer without a name: right numbers in wrong places, and wrong ones in some places only.
#include "tests/verify/mistakes_without_a_name.h"

namespace weft::planted {

using verify::Matrix;

void add_mistakes_of_place(std::vector<Mistake>& all) {
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
  // Tiles.
  const auto in_tile = [](std::function<Matrix(const Job&, int)> of) {
    return [=](Job& job) {
      for (int r = 0; r < job.ranks; ++r)
        for (int64_t i = 3; i < 7; ++i)
          job.reduced(r).middleCols(i * job.columns + 2, 5) = of(job, r).middleCols(i * job.columns + 2, 5);
    };
  };
  const std::string tile = "rows 3 to 6, columns 2 to 6 of 12 x 10: ";
  all.push_back(
      {"tiles", "stale", 1, in_tile([](const Job& job, int r) { return job.previous(r); }), {tile + "stale bucket"}});
  all.push_back({"tiles",
                 "not reduced",
                 1,
                 in_tile([](const Job& job, int r) { return job.local(r); }),
                 {tile + "bucket never reduced"}});
  all.push_back(
      {"tiles", "lost", 1, in_tile([](const Job& job, int r) { return Matrix(0 * job.reduced(r)); }), {tile + "lost"}});
  all.push_back({"tiles",
                 "reduced twice",
                 1,
                 in_tile([](const Job& job, int r) { return Matrix(job.ranks * job.reduced(r)); }),
                 {tile + "the reducer sums instead"}});
}

}  // namespace weft::planted
