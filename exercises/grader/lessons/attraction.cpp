// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exercises/grader/lessons.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::grader {
namespace {

using LossOf = std::function<Var(const Var& features, Communicator& comm)>;

Measure of_loss(const LossOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    Tape tape;
    const Var features = tape.watch(normal({rows_of_rank(samples, comm.rank().value), 2}, 1, comm));
    const Var loss = answer(features, comm);
    require(loss.size() == 1, "a share is a scalar, not ", loss.shape());
    return {comm.all_reduce(loss.value().reshape({})), tape.gradient(loss, {features})[0].value()};
  };
}

Rows rows_of(const Var& x, Communicator& comm) { return comm.rows_of(x.shape()[0]); }

Var sum_of_losses(const Var& queries, const Var& keys) {
  return sum(log_sum_exp(matmul(queries, keys, Transpose::no, Transpose::yes), 1));
}
// The share, if these are the keys.
Var with_keys(const Var& features, const Var& keys, Communicator& comm) {
  return share(sum_of_losses(features, keys), total_rows(rows_of(features, comm)), comm);
}
LossOf with_gather(const LossOf& gather) {
  return [=](const Var& features, Communicator& comm) { return with_keys(features, gather(features, comm), comm); };
}

Var gathered(const Var& x, Communicator& comm) { return all_gather_v(x, rows_of(x, comm), comm); }
Var own_slot(const Var& x, Communicator& comm) {
  const Rows rows = rows_of(x, comm);
  return web::with_backward(AllGather{rows},
                            web::mistake_named("own slot").made_of(web::blocks_of(AllGather{rows}, rows)), x, comm);
}

// Divided by the number of the own samples, or at least by one; and by the number of ranks.
LossOf with_own_count(bool averaged, bool guarded) {
  return [=](const Var& x, Communicator& comm) {
    const int64_t own = guarded ? std::max<int64_t>(x.shape()[0], 1) : x.shape()[0];
    return sum_of_losses(x, gathered(x, comm)) / static_cast<double>(averaged ? own * comm.size() : own);
  };
}

const char* const mean_of_means =
    "This is the mean of the ranks' means: a sample counts more on a rank that has few of them.";

}  // namespace

Lesson attraction(const LossOf& learner) {
  Lesson lesson{
      5,
      "the own slot",
      {{"the sum of the shares"}, {"the cotangent of the features", 1}},
      of_loss(learner),
      of_loss(with_gather(gathered)),
      {{"S2", "The own rows are put back into their slot. What the other ranks' losses say of them is lost.",
        of_loss(with_gather(own_slot))},
       {"S3",
        "Every rank computes the whole loss with its own slot put back, and an average leaves 1/W of the gradient.",
        of_loss([](const Var& x, Communicator& comm) {
          const Var all = own_slot(x, comm);
          const auto samples = static_cast<double>(all.shape()[0]);
          return with_placement(sum_of_losses(all, all) / (samples * comm.size()), comm, Placement::varying);
        })},
       {"S1", "The other rows, and the own ones among them, are constants. Features learn from their own loss only.",
        of_loss([](const Var& x, Communicator& comm) { return with_keys(x, detach(gathered(x, comm)), comm); })},
       {"", "The features are constants where they are compared with all others, so they learn as keys only.",
        of_loss([](const Var& x, Communicator& comm) {
          return share(sum_of_losses(detach(x), gathered(x, comm)), total_rows(rows_of(x, comm)), comm);
        })},
       {"", "The own rows are compared with the own rows only, not with those of all ranks.",
        of_loss([](const Var& x, Communicator& comm) { return with_keys(x, x, comm); })},
       {"S12", "Each rank divides by the number of its own samples.", of_loss(with_own_count(false, false))},
       {"S12", "Each rank divides by the number of its own samples.", of_loss(with_own_count(false, true))},
       {"S12", mean_of_means, of_loss(with_own_count(true, false))},
       {"S12", mean_of_means, of_loss(with_own_count(true, true))},
       {"", "The logarithm is of sums over queries, axis 0, not over keys.",
        of_loss([](const Var& x, Communicator& comm) {
          const Var scores = matmul(x, gathered(x, comm), Transpose::no, Transpose::yes);
          return share(sum(log_sum_exp(scores, 0)), total_rows(rows_of(x, comm)), comm);
        })}}};
  add_mistakes_of_collectives(lesson.mistakes, [](const web::Mistake& mistake) {
    return of_loss(with_gather([&mistake](const Var& x, Communicator& comm) {
      const AllGather gather{rows_of(x, comm)};
      return web::with_backward(gather, mistake.made_of(web::blocks_of(gather, gather.rows)), x, comm);
    }));
  });
  return lesson;
}

}  // namespace weft::grader
