// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/exercises/planted.h"

using namespace weft;
using namespace weft::grader;
using exercises::Cotangents;

TEST_CASE("wrong cotangents of a tape are named") {
  const auto w_is = [](const std::function<Var(const Var& w, const Var& x)>& cotangent) {
    return cotangents([=](const Var& w, const Var& x) { return Cotangents{w * w + 1, w * x, cotangent(w, x)}; });
  };
  using V = const Var&;
  expect_wrong(w_is([](V w, V x) { return (w * w + 1) * x; }),
               {"S32: What w is handed through square is missing.", "wrong: the cotangent of w\n"});
  expect_wrong(w_is([](V w, V x) { return 2 * w * x * w; }), {"S32: What w is handed through product is missing."});
  expect_wrong(
      w_is([](V w, V x) { return (2 * w * w + 1) * x; }),
      {"square uses w twice, and one of the two uses is missing", "It shows on 1, 3 and 5 ranks.", " at [0], not "});
  expect_wrong(w_is([](V w, V x) { return x + w + w; }), {"derivatives of each node alone"});
  expect_wrong(w_is([](V w, V x) { return w * w + 1 + 2 * w * x * w; }), {"through product, x is missing"});
  expect_wrong(w_is([](V w, V x) { return (w * w + 1) * x + 2 * w * x; }), {"through square, w is missing"});
  expect_wrong(w_is([](V w, V x) { return w * x * x + 2 * (w * w + 1) * w; }), {"taken for each other"});
  expect_wrong(w_is([](V w, V x) { return -(3 * w * w + 1) * x; }), {"All values have the wrong sign"});
  expect_wrong(w_is([](V w, V x) { return 1.1 * (3 * w * w + 1) * x; }),
               {"S33: All values are 1.1 times the right ones."});
  expect_wrong(w_is([](V w, V x) { return 4 * w * x; }),
               {"none of the usual mistakes", "On 1 rank with 4, rank 0 has "});
  expect_wrong(w_is([](V w, V x) { return sum(3 * w * w * x); }), {"rank 0 has a tensor of (), not of (4)"});
  expect_wrong(w_is([](V, V) { return Var(); }), {"rank 0 has an empty tensor, not one of (4)"});
  expect_wrong(cotangents([](V w, V x) {
                 return Cotangents{w * w, w * x, w * w * x + 2 * w * x * w};
               }),
               {"product is used twice", "wrong: the cotangent of product, the cotangent of w\n"});
  expect_wrong(cotangents([](V w, V x) {
                 return Cotangents{w * x + 1, w * w, (w * x + 1) * x + 2 * w * w * w};
               }),
               {"A product hands each factor the other one. Here each gets itself.",
                "wrong: the cotangent of product, the cotangent of square, the cotangent of w\n"});
  expect_wrong(cotangents([](V w, V x) {
                 return Cotangents{w * w, w * x, w + sum(x)};
               }),
               {"On 1 rank with 4 it ends with an error:\n  add: "});
}

namespace {

const Op wrong_mean_op{"geometric_mean", {}};
using Slope = std::function<Var(const Var& g, const Var& c, const Var& a, const Var& b)>;
Lesson mean_with(const Slope& of_a, const Slope& of_b) {
  return geometric_mean([=](const Var& a, const Var& b) {
    return record(wrong_mean_op, sqrt(Var(a.value()) * Var(b.value())).value(),
                  from(a, [=](const Var& g, const Var& c) { return of_a(g, c, a, b); }),
                  from(b, [=](const Var& g, const Var& c) { return of_b(g, c, a, b); }));
  });
}
using V = const Var&;
Var right_of_a(V g, V c, V, V b) { return g * b / (2 * c); }
Var right_of_b(V g, V c, V a, V) { return g * a / (2 * c); }

}  // namespace

TEST_CASE("wrong pullbacks of an operation are named") {
  expect_wrong(
      mean_with([](V g, V c, V, V b) { return g * b / c; }, [](V g, V c, V a, V) { return g * a / c; }),
      {"the factor 1/2 is missing in the pullback", "wrong: the cotangent of a, the cotangent of b, the second"});
  expect_wrong(mean_with(right_of_b, right_of_a), {"An input is handed what belongs to the other one."});
  expect_wrong(mean_with([](V, V c, V, V b) { return b / (2 * c); }, [](V, V c, V a, V) { return a / (2 * c); }),
               {"does not multiply by g"});
  expect_wrong(mean_with([](V g, V, V, V b) { return g * b; }, [](V g, V, V a, V) { return g * a; }),
               {"the derivative of the root is missing"});
  expect_wrong(
      mean_with([](V g, V c, V, V b) { return g * b / (2 * Var(c.value())); },
                [](V g, V c, V a, V) { return g * a / (2 * Var(c.value())); }),
      {"In the second one the mean is a number", "wrong: the second derivative at a, the second derivative at b"});
  expect_wrong(mean_with([](V g, V c, V, V b) { return g * detach(b) / (2 * c); },
                         [](V g, V c, V a, V) { return g * detach(a) / (2 * c); }),
               {"In the second one an input is a number"});
  expect_wrong(mean_with([](V g, V c, V, V b) { return Var((g * b / (2 * c)).value()); },
                         [](V g, V c, V a, V) { return Var((g * a / (2 * c)).value()); }),
               {"there is no second one"});
  // A mistake in one of the two.
  expect_wrong(mean_with([](V g, V c, V, V b) { return g * b / c; }, right_of_b),
               {"wrong: the cotangent of a, the second derivative at a, the second derivative at b\n",
                "the factor 1/2 is missing in the pullback"});
  expect_wrong(mean_with(right_of_a, [](V g, V c, V a, V) { return g * a / (2 * Var(c.value())); }),
               {"In the second one the mean is a number"});
  expect_wrong(
      mean_with(right_of_a, [](V g, V c, V a, V) { return -g * a / (2 * c); }),
      {"wrong: the cotangent of b\n  All values have the wrong sign.", "wrong, too: the second derivative at a"});
  expect_wrong(geometric_mean([](V a, V) { return sqrt(a * a); }), {"wrong: the value\n  This is none of the usual"});
  // The derivative of (a + b) / 2, but not its value.
  expect_wrong(mean_with([](V g, V, V, V) { return g / 2; }, [](V g, V, V, V) { return g / 2; }),
               {"wrong: the cotangent of a\n  This is none of the usual mistakes."});
  expect_wrong(geometric_mean([](V a, V b) { return (a + b) / 2; }), {"not the root of a b", "wrong: the value, "});
  expect_wrong(geometric_mean([](V a, V b) { return sqrt(a * detach(b)); }), {"wrong: the cotangent of b", "S1: "});
}

TEST_CASE("wrong shares of a mean are named") {
  using L = const Var&;
  using C = Communicator&;
  expect_wrong(mean_share([](L losses, C) { return mean(losses); }),
               {"S12: Each rank returns the mean of its own samples", "It shows on 3 and 5 ranks.",
                "On 3 ranks with 3, 0, 2 it ends with an error:\n  mean: of no elements"});
  expect_wrong(
      mean_share([](L losses, C comm) { return losses.size() == 0 ? sum(losses) : mean(losses) / comm.size(); }),
      {"S12: This is the mean of the ranks' means", "and only if shards are uneven"});
  expect_wrong(mean_share([](L losses, C comm) { return sum(losses) / comm.size(); }),
               {"S33: The sum is divided by the number of ranks"});
  expect_wrong(mean_share([](L losses, C) { return sum(losses); }), {"not divided at all"});
  expect_wrong(mean_share([](L losses, C comm) {
                 return share(sum(losses), total_rows(comm.rows_of(losses.size())), comm) / comm.size();
               }),
               {"S9: The share is divided by the number of ranks once more", "It shows on 3 and 5 ranks."});
  expect_wrong(mean_share([](L losses, C comm) { return all_reduce(sum(losses), comm) / total(losses.size(), comm); }),
               {"Every rank returns the whole loss", "wrong: the sum of the shares"});
  expect_wrong(mean_share([](L losses, C comm) {
                 const Rows rows = comm.rows_of(losses.size());
                 return sum(losses) / static_cast<double>(*std::max_element(rows.begin(), rows.end()) * comm.size());
               }),
               {"S13: "});
  expect_wrong(mean_share([](L losses, C comm) { return sum(losses) * 2 / total(losses.size(), comm); }),
               {"All values are twice the right ones."});
  const Lesson no_scalar = mean_share([](L losses, C) { return losses; });
  expect_wrong(no_scalar, {"a share is a scalar, not (4)"});
  CHECK_THAT(grade(no_scalar).text, !Catch::Contains("wrong: "));
  // A rank without samples leaves, and the others wait for it.
  expect_wrong(mean_share([](L losses, C comm) {
                 if (losses.size() == 0) return sum(losses);
                 return share(sum(losses), total_rows(comm.rows_of(losses.size())), comm);
               }),
               {"3 ranks with 3, 0, 2 it ends with an error:"});
}
