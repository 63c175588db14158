// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exercises/grader/lessons.h"
#include "tools/web/with_backward.h"
#include "weft/engine/ops/elementwise.h"

namespace weft::grader {
namespace {

using WholeGradientOf = std::function<Tensor(const Tensor& of_own_mean, int64_t samples, Communicator& comm)>;

Measure of_gradient(const WholeGradientOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const int64_t own = rows_of_rank(samples, comm.rank().value);
    return {answer(own > 0 ? normal({3}, 1, comm) : Tensor::zeros({3}, DType::f64), own, comm)};
  };
}

Tensor times(const Tensor& x, double factor) { return (Var(x) * factor).value(); }

// The sum over ranks with weights that ranks make of the numbers of samples, times another factor.
using Count = std::function<double(const Rows& samples, int rank)>;
WholeGradientOf weighted(const Count& weight, const Count& factor) {
  return [=](const Tensor& of_own_mean, int64_t samples, Communicator& comm) {
    const Rows all = comm.rows_of(samples);
    const int me = comm.rank().value;
    return times(comm.all_reduce(times(of_own_mean, weight(all, me))), factor(all, me));
  };
}
double one(const Rows&, int) { return 1; }
double whole(const Rows& n, int) { return static_cast<double>(total_rows(n)); }
double count_of(const Rows& n, int rank) { return static_cast<double>(rows_of_rank(n, rank)); }
double fraction(const Rows& n, int rank) { return count_of(n, rank) / whole(n, rank); }

}  // namespace

Lesson whole_gradient(const WholeGradientOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const WholeGradientOf& wrong) {
    return Answer{signature, what, of_gradient(wrong)};
  };
  const WholeGradientOf right = weighted(count_of, [](const Rows& n, int r) { return 1 / whole(n, r); });
  Lesson lesson{
      7,
      "data parallelism",
      {{"the gradient"}},
      of_gradient(learner),
      of_gradient(right),
      {
          mistake("S12",
                  "This is the mean of the ranks' gradients: a sample counts more on a rank that has few of them.",
                  weighted(one, [](const Rows& n, int) { return 1.0 / static_cast<double>(n.size()); })),
          mistake("S12", "This is the mean over the ranks that have samples, however many they have.",
                  weighted(one,
                           [](const Rows& n, int) {
                             return 1.0 /
                                    static_cast<double>(std::ranges::count_if(n, [](int64_t c) { return c > 0; }));
                           })),
          mistake("S8", "The gradients of means are summed as they are.", weighted(one, one)),
          mistake("S33", "The gradients of means are summed as they are, and divided by the number of all samples.",
                  weighted(one, [](const Rows& n, int r) { return 1 / whole(n, r); })),
          mistake("S33", "The sum over all samples is not divided by their number.", weighted(count_of, one)),
          mistake("S33", "The sum over all samples is divided by the number of ranks.",
                  weighted(count_of, [](const Rows& n, int) { return 1.0 / static_cast<double>(n.size()); })),
          mistake("S33", "The sum over all samples is divided by the number of a rank's own samples, times W.",
                  weighted(count_of,
                           [](const Rows& n, int r) { return 1 / (count_of(n, r) * static_cast<double>(n.size())); })),
          mistake("S9", "The gradient is divided by the number of ranks once more.",
                  weighted(fraction, [](const Rows& n, int) { return 1.0 / static_cast<double>(n.size()); })),
          mistake("S22", "Each rank has its own gradient: nothing is summed over ranks.",
                  [](const Tensor& of_own_mean, int64_t, Communicator&) { return of_own_mean; }),
          mistake("", "The weights are turned round: ranks with few samples count more.",
                  weighted([](const Rows& n, int r) { return count_of(n, r) > 0 ? 1 / count_of(n, r) : 0; }, one)),
      }};
  add_mistakes_of_collectives(lesson.mistakes, [](const web::Mistake& made) {
    return of_gradient([&made](const Tensor& of_own_mean, int64_t samples, Communicator& comm) {
      const Rows n = comm.rows_of(samples), inputs(n.size(), of_own_mean.size());
      const Tensor term = times(of_own_mean, fraction(n, comm.rank().value));
      return web::applied(made.made_of(web::blocks_of(AllReduce{}, inputs)), term, term.shape(), comm);
    });
  });
  return lesson;
}

}  // namespace weft::grader
