// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exercises/grader/lessons.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::grader {
namespace {

using VarianceOf = std::function<Var(const Var& samples, Communicator& comm)>;

// Each rank's loss is the variance times a random factor of its own.
Measure of_variance(const VarianceOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const Shape shape{rows_of_rank(samples, comm.rank().value)};
    Tape tape;
    const Var x = tape.watch(normal(shape, 1, comm));
    Var y = answer(x, comm);
    require(y.size() == 1, "a variance is a scalar, not ", y.shape());
    if (placement_of(y, comm) == Placement::invariant) y = vary(y, comm);
    const Var loss = reshape(y, {}) * tape.constant(normal({}, 2, comm));
    const Var first = tape.gradient(loss, {x}, Graph::create)[0];
    const Var second = tape.gradient(sum(first * tape.constant(normal(shape, 3, comm))), {x})[0];
    return {y.value(), first.value(), second.value()};
  };
}

double count(const Var& x, Communicator& comm) { return static_cast<double>(total_rows(comm.rows_of(x.size()))); }

using SumOf = std::function<Var(const Var& x, Communicator& comm)>;
Var summed(const Var& x, Communicator& comm) { return all_reduce(x, comm); }
Var own_only(const Var& x, Communicator&) { return x; }

Var own_mean(const Var& x, Communicator&) { return sum(x) / static_cast<double>(std::max<int64_t>(x.size(), 1)); }

struct Choice {
  SumOf over_ranks = summed;
  SumOf mean = [](const Var& x, Communicator& comm) { return all_reduce(sum(x), comm) / count(x, comm); };
  std::function<double(double own, double all, double ranks)> divisor = [](double, double all, double) { return all; };
};
VarianceOf with(const Choice& choice) {
  return [=](const Var& x, Communicator& comm) {
    const Var centered = x - repeat(choice.mean(x, comm), 0, x.size());
    const double divisor = choice.divisor(static_cast<double>(x.size()), count(x, comm), comm.size());
    return choice.over_ranks(sum(square(centered)), comm) / divisor;
  };
}

// With this sum over ranks for both the mean and the squares.
VarianceOf with_sum(const SumOf& over_ranks) {
  return with({.over_ranks = over_ranks,
               .mean = [=](const Var& x, Communicator& comm) { return over_ranks(sum(x), comm) / count(x, comm); }});
}

// The variance of each rank's own samples, put together by ranks.
VarianceOf of_own(const SumOf& together, bool guarded) {
  return [=](const Var& x, Communicator& comm) {
    const double own = guarded ? std::max<double>(static_cast<double>(x.size()), 1) : static_cast<double>(x.size());
    const Var mean = sum(x) / own;
    return together(sum(square(x - repeat(mean, 0, x.size()))) / own, comm);
  };
}

// An all_reduce of a scalar with another backward.
SumOf with_mistake(const web::Mistake& mistake) {
  return [&mistake](const Var& x, Communicator& comm) {
    const Rows inputs(static_cast<size_t>(comm.size()), 1);
    const web::Backward backward = mistake.made_of(web::blocks_of(AllReduce{}, inputs));
    return reshape(web::with_backward(AllReduce{}, backward, reshape(x, {1}), comm), {});
  };
}

}  // namespace

Lesson whole_variance(const VarianceOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const VarianceOf& wrong) {
    return Answer{signature, what, of_variance(wrong)};
  };
  const auto averaged = [](const Var& x, Communicator& comm) { return all_reduce(x, comm) / comm.size(); };
  const auto constant = [](const Var& x, Communicator& comm) { return detach(all_reduce(x, comm)) + (x - detach(x)); };
  Lesson lesson{
      8,
      "a variance of uneven shards",
      {{"the variance"}, {"the cotangent of the samples", 1}, {"the second derivative", 2}},
      of_variance(learner),
      of_variance(with({})),
      {
          mistake("S12", "This is the mean of the ranks' own variances.", of_own(averaged, false)),
          mistake("S12", "This is the mean of the ranks' own variances.", of_own(averaged, true)),
          mistake("S21a", "Each rank has the variance of its own samples.", of_own(own_only, false)),
          mistake("S21a", "Each rank has the variance of its own samples.", of_own(own_only, true)),
          mistake("S12",
                  "The squares are of differences from each rank's own mean. What the means differ by is missing.",
                  with({.mean = own_mean})),
          mistake("S12", "The mean is the mean of the ranks' means.",
                  with({.mean = [=](const Var& x, Communicator& comm) { return averaged(own_mean(x, comm), comm); }})),
          mistake("S33", "The sum of squares is divided by the number of samples less one.",
                  with({.divisor = [](double, double all, double) { return all - 1; }})),
          mistake("S33", "The sum of squares of all ranks is divided by the number of a rank's own samples.",
                  with({.divisor = [](double own, double, double) { return own; }})),
          mistake("S33", "The sum of squares of all ranks is divided by W times the number of a rank's own samples.",
                  with({.divisor = [](double own, double, double ranks) { return own * ranks; }})),
          mistake("S11", "A rank's own sum of squares is divided by the number of samples of all ranks.",
                  with({.over_ranks = own_only})),
          mistake("", "The sum of squares is not divided by the number of samples.",
                  with({.divisor = [](double, double, double) { return 1; }})),
          mistake("", "This is the mean of the squares: the mean is not subtracted.",
                  with({.mean = [](const Var& x, Communicator&) { return sum(x) * 0; }})),
          mistake("",
                  "The first derivative is right. In the second one the mean is a number, which has no derivative: it "
                  "went through detach() or value().",
                  with({.mean = [](const Var& x,
                                   Communicator& comm) { return detach(all_reduce(sum(x), comm)) / count(x, comm); }})),
          mistake("S10", "The sum over ranks is a constant but for the rank's own part: other ranks' losses are lost.",
                  with_sum(constant)),
      }};
  add_mistakes_of_collectives(lesson.mistakes,
                              [](const web::Mistake& made) { return of_variance(with_sum(with_mistake(made))); });
  return lesson;
}

}  // namespace weft::grader
