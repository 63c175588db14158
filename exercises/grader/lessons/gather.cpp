// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/lessons.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::grader {
namespace {

using GatherOf = std::function<Var(const Var& rows, Communicator& comm)>;

// Each rank's loss is the sum of what it has gathered, times random factors of its own.
Measure of_gather(const GatherOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    Tape tape;
    const Var rows = tape.watch(normal({rows_of_rank(samples, comm.rank().value), 2}, 1, comm));
    const Var all = answer(rows, comm);
    const Var loss = sum(all * tape.constant(normal(all.shape(), 2, comm)));
    return {all.value(), tape.gradient(loss, {rows})[0].value()};
  };
}

}  // namespace

Lesson gather(const GatherOf& learner) {
  Lesson lesson{4,
                "an all_gather and its adjoint",
                {{"what is gathered"}, {"the cotangent of the own rows", 1}},
                of_gather(learner),
                of_gather([](const Var& rows, Communicator& comm) {
                  return all_gather_v(rows, comm.rows_of(rows.shape()[0]), comm);
                }),
                {}};
  add_mistakes_of_collectives(lesson.mistakes, [](const web::Mistake& mistake) {
    return of_gather([&mistake](const Var& rows, Communicator& comm) {
      const AllGather gather{comm.rows_of(rows.shape()[0])};
      return web::with_backward(gather, mistake.made_of(web::blocks_of(gather, gather.rows)), rows, comm);
    });
  });
  return lesson;
}

}  // namespace weft::grader
