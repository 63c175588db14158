// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/lessons.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::grader {
namespace {

using exercises::Loss;
using GradientOf = std::function<Tensor(const Parameter& w, const Loss& first, const Loss& second, Communicator& comm)>;

// Shares of the means of (w - x)^2 and of w^3 x, over all samples.
Measure of_both(const GradientOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    const Parameter w("w", normal({2}, 1, 0));
    const int64_t own = rows_of_rank(samples, comm.rank().value), all = total_rows(samples);
    const auto loss = [&](uint64_t purpose, const std::function<Var(const Var& w, const Var& x)>& term) -> Loss {
      return [=, &comm, x = normal({own, 2}, purpose, comm)](Tape& tape, const Parameter& parameter) {
        return share(sum(term(repeat(tape.watch(parameter), 0, own), tape.constant(x))), all, comm);
      };
    };
    return {answer(w, loss(2, [](const Var& w, const Var& x) { return square(w - x); }),
                   loss(3, [](const Var& w, const Var& x) { return w * w * w * x; }), comm)};
  };
}

// This rank's own gradient of one loss.
Tensor own_gradient(const Parameter& w, const Loss& loss) {
  Tape tape;
  Gradients gradients;
  tape.backward(loss(tape, w), gradients);
  return gradients[w].clone();
}
Tensor combined(const Tensor& a, double by, const Tensor& b = {}, double factor = 0) {
  return (b.defined() ? Var(a) * by + Var(b) * factor : Var(a) * by).value();
}

// The sums over ranks of both, with these factors.
GradientOf sums(double of_first, double of_second, bool averaged = false) {
  return [=](const Parameter& w, const Loss& first, const Loss& second, Communicator& comm) {
    const double scale = averaged ? 1.0 / comm.size() : 1;
    return comm.all_reduce(
        combined(own_gradient(w, first), of_first * scale, own_gradient(w, second), of_second * scale));
  };
}

}  // namespace

Lesson gradient_of_both(const GradientOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const GradientOf& wrong) {
    return Answer{signature, what, of_both(wrong)};
  };
  using P = const Parameter&;
  using L = const Loss&;
  using C = Communicator&;
  Lesson lesson{
      9,
      "two losses and one sum",
      {{"the gradient"}},
      of_both(learner),
      of_both(sums(1, 1)),
      {
          mistake("S14", "What was summed over ranks after the first loss is summed once more after the second.",
                  [](P w, L first, L second, C comm) {
                    const Tensor so_far = comm.all_reduce(own_gradient(w, first));
                    return comm.all_reduce(combined(so_far, 1, own_gradient(w, second), 1));
                  }),
          mistake("S15", "Only the gradient of the second loss is left: its backward overwrites.", sums(0, 1)),
          mistake("", "The gradient of the second loss is missing.", sums(1, 0)),
          mistake("S17", "The gradient is summed over ranks after the first loss; that of the second one stays local.",
                  [](P w, L first, L second, C comm) {
                    return combined(comm.all_reduce(own_gradient(w, first)), 1, own_gradient(w, second), 1);
                  }),
          mistake("", "That of the second loss is summed over ranks, and that of the first one stays local.",
                  [](P w, L first, L second, C comm) {
                    return combined(own_gradient(w, first), 1, comm.all_reduce(own_gradient(w, second)), 1);
                  }),
          mistake("S16", "The gradients of the two losses are averaged. The objective is the sum of both.",
                  sums(0.5, 0.5)),
          mistake("", "The gradient of the first loss counts twice: its gradients are added at each backward.",
                  sums(2, 1)),
          mistake("", "The gradient of the second loss counts twice.", sums(1, 2)),
          mistake("S9", "The sum is divided by the number of ranks, as DDP does. The losses are shares already.",
                  sums(1, 1, true)),
          mistake("S22", "Each rank has its own gradient: nothing is summed over ranks.",
                  [](P w, L first, L second, C) {
                    return combined(own_gradient(w, first), 1, own_gradient(w, second), 1);
                  }),
          mistake("", "The first loss is taken twice, and the second one never.", sums(2, 0)),
          mistake("", "The gradient of the second loss is subtracted.", sums(1, -1)),
      }};
  add_mistakes_of_collectives(lesson.mistakes, [](const web::Mistake& made) {
    return of_both([&made](P w, L first, L second, C comm) {
      const Tensor term = combined(own_gradient(w, first), 1, own_gradient(w, second), 1);
      const Rows inputs(static_cast<size_t>(comm.size()), term.size());
      return web::applied(made.made_of(web::blocks_of(AllReduce{}, inputs)), term, term.shape(), comm);
    });
  });
  return lesson;
}

}  // namespace weft::grader
