// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/exercises/planted.h"

using namespace weft;
using namespace weft::grader;
using exercises::Loss;

namespace {

using T = const Tensor&;
using V = const Var&;
using C = Communicator&;
using P = const Parameter&;
using L = const Loss&;

Tensor added(T a, T b) { return (Var(a) + Var(b)).value(); }

}  // namespace

TEST_CASE("wrong gradients of data parallelism are named") {
  expect_wrong(
      whole_gradient([](T g, int64_t, C comm) { return comm.all_reduce(g, ReduceOp::mean); }),
      {"S12: This is the mean of the ranks' gradients", "It shows on 3 and 5 ranks, and only if shards are uneven."});
  expect_wrong(whole_gradient([](T g, int64_t n, C comm) {
                 const double ranks = comm.all_reduce(Tensor::full({}, n > 0, DType::f64)).item();
                 return scaled(comm.all_reduce(g), 1 / ranks);
               }),
               {"S12: This is the mean over the ranks that have samples"});
  expect_wrong(whole_gradient([](T g, int64_t, C comm) { return comm.all_reduce(g); }),
               {"S8: The gradients of means are summed as they are."});
  expect_wrong(
      whole_gradient([](T g, int64_t n, C comm) { return comm.all_reduce(scaled(g, static_cast<double>(n))); }),
      {"S33: The sum over all samples is not divided"});
  expect_wrong(whole_gradient([](T g, int64_t n, C comm) { return scaled(comm.all_reduce(g), 1 / total(n, comm)); }),
               {"S33: The gradients of means are summed as they are, and divided"});
  expect_wrong(whole_gradient([](T g, int64_t, C) { return g; }), {"S22: Each rank has its own gradient"});
  expect_wrong(
      whole_gradient([](T g, int64_t n, C comm) { return scaled(g, static_cast<double>(n) / total(n, comm)); }),
      {"S2: Each rank keeps what its own loss says"});
  expect_wrong(whole_gradient([](T g, int64_t n, C comm) {
                 return comm.all_reduce(scaled(g, static_cast<double>(n) / total(n, comm)), ReduceOp::mean);
               }),
               {"S9: The gradient is divided by the number of ranks once more."});
  expect_wrong(whole_gradient([](T g, int64_t n, C comm) {
                 const Tensor sum = comm.all_reduce(scaled(g, static_cast<double>(n)));
                 return scaled(sum, 1 / (static_cast<double>(n) * comm.size()));
               }),
               {"a rank's own samples, times W"});
  expect_wrong(whole_gradient([](T g, int64_t n, C comm) {
                 return comm.reduce(scaled(g, static_cast<double>(n) / total(n, comm)), {0});
               }),
               {"none of the usual mistakes", "rank 1 has 0 at [0], not ", "; all its values are zero"});
}

TEST_CASE("wrong variances of uneven shards are named") {
  const auto centred = [](V x, V mean) { return sum(square(x - repeat(mean, 0, x.size()))); };
  const auto own_variance = [](V x) { return x.size() > 0 ? variance(x, 0) : sum(x); };
  const auto mean_of_all = [](V x, C comm) { return all_reduce(sum(x), comm) / total(x.size(), comm); };
  expect_wrong(whole_variance([=](V x, C comm) { return all_reduce(own_variance(x), comm, ReduceOp::mean); }),
               {"S12: This is the mean of the ranks' own variances."});
  expect_wrong(whole_variance([=](V x, C) { return own_variance(x); }),
               {"S21a: Each rank has the variance of its own samples."});
  expect_wrong(whole_variance([=](V x, C comm) {
                 const Var own_mean = x.size() > 0 ? mean(x) : sum(x);
                 return all_reduce(centred(x, own_mean), comm) / total(x.size(), comm);
               }),
               {"from each rank's own mean"});
  expect_wrong(
      whole_variance([=](V x, C comm) {
        return all_reduce(centred(x, detach(mean_of_all(x, comm))), comm) / total(x.size(), comm);
      }),
      {"wrong: the second derivative\n  The first derivative is right. In the second one the mean is a number"});
  expect_wrong(whole_variance([=](V x, C comm) {
                 return all_reduce(centred(x, mean_of_all(x, comm)), comm) / (total(x.size(), comm) - 1);
               }),
               {"S33: ", "number of samples less one"});
  expect_wrong(whole_variance([=](V x, C comm) {
                 return all_reduce(centred(x, mean_of_all(x, comm)), comm) / static_cast<double>(x.size());
               }),
               {"by the number of a rank's own samples."});
  expect_wrong(whole_variance([=](V x, C comm) { return centred(x, mean_of_all(x, comm)) / total(x.size(), comm); }),
               {"S11: A rank's own sum of squares"});
  expect_wrong(whole_variance([](V x, C comm) { return all_reduce(sum(square(x)), comm) / total(x.size(), comm); }),
               {"the mean is not subtracted"});
  expect_wrong(
      whole_variance([=](V x, C comm) {
        const auto sum_of_all = [&](V own) { return own + detach(all_reduce(own, comm) - own); };
        const double samples = total(x.size(), comm);
        return sum_of_all(centred(x, sum_of_all(sum(x)) / samples)) / samples;
      }),
      {"S10: The sum over ranks is a constant but for the rank's own part", "wrong: the cotangent of the samples, "});
  expect_wrong(whole_variance([=](V x, C comm) {
                 return sqrt(all_reduce(centred(x, mean_of_all(x, comm)), comm) / total(x.size(), comm));
               }),
               {"none of the usual mistakes", "wrong: the variance\n"});
}

TEST_CASE("wrong gradients of two losses are named") {
  const auto backward = [](P w, L loss, Gradients& gradients) {
    Tape tape;
    tape.backward(loss(tape, w), gradients);
  };
  const auto one = [=](P w, L loss) {
    Gradients gradients;
    backward(w, loss, gradients);
    return gradients[w].clone();
  };
  expect_wrong(
      gradient_of_both([=](P w, L first, L second, C comm) {
        return comm.all_reduce(added(comm.all_reduce(one(w, first)), one(w, second)));
      }),
      {"S14: What was summed over ranks after the first loss is summed once more", "It shows on 3 and 5 ranks."});
  expect_wrong(gradient_of_both([=](P w, L, L second, C comm) { return comm.all_reduce(one(w, second)); }),
               {"S15: Only the gradient of the second loss is left"});
  expect_wrong(
      gradient_of_both([=](P w, L first, L, C comm) { return comm.all_reduce(added(one(w, first), one(w, first))); }),
      {"The first loss is taken twice, and the second one never."});
  expect_wrong(gradient_of_both([=](P w, L first, L, C comm) { return comm.all_reduce(one(w, first)); }),
               {"The gradient of the second loss is missing."});
  expect_wrong(gradient_of_both([=](P w, L first, L second, C comm) {
                 return added(comm.all_reduce(one(w, first)), one(w, second));
               }),
               {"S17: "});
  expect_wrong(gradient_of_both([=](P w, L first, L second, C) { return added(one(w, first), one(w, second)); }),
               {"S22: Each rank has its own gradient"});
  expect_wrong(gradient_of_both([=](P w, L first, L second, C comm) {
                 return comm.all_reduce(added(one(w, first), one(w, second)), ReduceOp::mean);
               }),
               {"S9: The sum is divided by the number of ranks, as DDP does."});
  expect_wrong(gradient_of_both([=](P w, L first, L second, C comm) {
                 Gradients gradients;
                 Tensor total = Tensor::zeros(w.value.shape(), DType::f64);
                 for (L loss : {first, second}) {
                   backward(w, loss, gradients);
                   total = added(total, comm.all_reduce(gradients[w]));
                 }
                 return total;
               }),
               {"The gradient of the first loss counts twice: its gradients are added at each backward."});
  expect_wrong(gradient_of_both([=](P w, L first, L second, C comm) {
                 return comm.all_reduce(comm.all_reduce(added(one(w, first), one(w, second))));
               }),
               {"S7: The sum is taken twice"});
  // One tape for both.
  expect_wrong(gradient_of_both([](P w, L first, L second, C comm) {
                 Gradients gradients;
                 Tape tape;
                 tape.backward(first(tape, w), gradients);
                 tape.backward(second(tape, w), gradients);
                 return comm.all_reduce(gradients[w]);
               }),
               {"On 1 rank with 4 it ends with an error:"});
}

namespace {

// Tokens of each code, and how many; and codes of what a rule makes of these.
struct Chosen {
  std::vector<double> sums, counts;
};
Chosen chosen_tokens(T codes, T tokens, T chosen) {
  const auto width = static_cast<size_t>(codes.shape()[1]);
  Chosen all{std::vector<double>(codes.values().size()), std::vector<double>(codes.values().size())};
  for (size_t i = 0; i < chosen.values().size(); ++i)
    for (size_t d = 0; d < width; ++d) {
      const size_t at = static_cast<size_t>(chosen.values()[i]) * width + d;
      all.sums[at] += tokens.values()[i * width + d];
      all.counts[at] += 1;
    }
  return all;
}
std::vector<double> over_ranks(const std::vector<double>& x, C comm) {
  return comm.all_reduce(Tensor::from({static_cast<int64_t>(x.size())}, x, DType::f64)).values();
}
using Rule = std::function<double(double old, double sum, double count)>;
Tensor by_rule(T codes, const std::vector<double>& sums, const std::vector<double>& counts, const Rule& rule) {
  std::vector<double> updated = codes.values();
  for (size_t i = 0; i < updated.size(); ++i) updated[i] = rule(updated[i], sums[i], counts[i]);
  return Tensor::from(codes.shape(), updated, DType::f64);
}
double mean_or_old(double old, double sum, double count) { return count > 0 ? sum / count : old; }

// Of sums and counts over all ranks.
Lesson codes_by(const Rule& rule) {
  return updated_codes([=](T codes, T tokens, T chosen, C comm) {
    const Chosen own = chosen_tokens(codes, tokens, chosen);
    return by_rule(codes, over_ranks(own.sums, comm), over_ranks(own.counts, comm), rule);
  });
}

}  // namespace

TEST_CASE("wrong codebooks of all ranks are named") {
  CHECK(grade(codes_by(mean_or_old)).outcome == Grade::right);
  expect_wrong(updated_codes([](T codes, T tokens, T chosen, C) {
                 const Chosen own = chosen_tokens(codes, tokens, chosen);
                 return by_rule(codes, own.sums, own.counts, mean_or_old);
               }),
               {"S26: Each rank follows its own tokens", "It shows on 3 and 5 ranks."});
  expect_wrong(updated_codes([](T codes, T tokens, T chosen, C comm) {
                 const Chosen own = chosen_tokens(codes, tokens, chosen);
                 return comm.all_reduce(by_rule(codes, own.sums, own.counts, mean_or_old), ReduceOp::mean);
               }),
               {"S12: This is the mean of the ranks' means, and a rank without tokens of a code counts"});
  expect_wrong(updated_codes([](T codes, T tokens, T chosen, C comm) {
                 Chosen own = chosen_tokens(codes, tokens, chosen);
                 for (size_t i = 0; i < own.sums.size(); ++i)
                   if (own.counts[i] > 0) own.sums[i] /= own.counts[i], own.counts[i] = 1;
                 return by_rule(codes, over_ranks(own.sums, comm), over_ranks(own.counts, comm), mean_or_old);
               }),
               {"S12: This is the mean of the ranks' means: "});
  expect_wrong(updated_codes([](T codes, T tokens, T chosen, C comm) {
                 const Chosen own = chosen_tokens(codes, tokens, chosen);
                 return by_rule(codes, over_ranks(own.sums, comm), own.counts, mean_or_old);
               }),
               {"S33: Sums of all ranks are divided by a rank's own counts."});
  expect_wrong(updated_codes([](T codes, T tokens, T chosen, C comm) {
                 const Chosen own = chosen_tokens(codes, tokens, chosen);
                 return by_rule(codes, own.sums, over_ranks(own.counts, comm), mean_or_old);
               }),
               {"S11: "});
  expect_wrong(codes_by([](double, double sum, double count) { return sum / std::max(count, 1.0); }),
               {"A code that no rank has chosen becomes zero. ", "rank 0 has 0 at [2, 0], not "});
  expect_wrong(codes_by([](double, double sum, double count) { return sum / count; }),
               {"zero divided by zero", "rank 0 has nan at [2, 0], not "});
  expect_wrong(codes_by([](double old, double sum, double count) { return count > 0 ? sum : old; }),
               {"S33: The sums are not divided by the counts."});
  expect_wrong(
      codes_by([](double old, double sum, double count) { return 0.9 * old + 0.1 * mean_or_old(old, sum, count); }),
      {"none of the usual mistakes"});
  expect_wrong(
      updated_codes([](T codes, T tokens, T chosen, C comm) {
        const Chosen own = chosen_tokens(codes, tokens, chosen);
        return by_rule(codes, over_ranks(own.sums, comm), over_ranks(own.counts, comm), mean_or_old).to(DType::f32);
      }),
      {"S28: All values are right but for their rounding"});
}
