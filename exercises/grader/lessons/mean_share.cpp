// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/share.h"

#include <algorithm>

#include "exercises/grader/lessons.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::grader {
namespace {

using ShareOf = std::function<Var(const Var& losses, Communicator& comm)>;

Measure of_share(const ShareOf& answer) {
  return [=](Communicator& comm, const Rows& samples) -> std::vector<Tensor> {
    Tape tape;
    const Var losses = tape.watch(normal({rows_of_rank(samples, comm.rank().value)}, 1, comm));
    const Var share = answer(losses, comm);
    require(share.size() == 1, "a share is a scalar, not ", share.shape());
    return {comm.all_reduce(share.value().reshape({})), tape.gradient(share, {losses})[0].value()};
  };
}

// The sum of the own losses over a number that ranks have made of the numbers of samples.
ShareOf divided(const std::function<double(const Rows& samples, int rank)>& by) {
  return [=](const Var& losses, Communicator& comm) {
    return sum(losses) / by(comm.rows_of(losses.size()), comm.rank().value);
  };
}
double count_of_all(const Rows& rows) { return static_cast<double>(total_rows(rows)); }
double own_count(const Rows& rows, int rank) { return static_cast<double>(rows_of_rank(rows, rank)); }
double count_of_ranks(const Rows& rows) { return static_cast<double>(rows.size()); }

}  // namespace

Lesson mean_share(const ShareOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const ShareOf& wrong) {
    return Answer{signature, what, of_share(wrong)};
  };
  const char* const own_mean = "Each rank returns the mean of its own samples, so the objective is a sum of means.";
  const char* const mean_of_means =
      "This is the mean of the ranks' means: a sample counts more on a rank that has few of them.";
  return {
      3,
      "a share of a mean",
      {{"the sum of the shares"}, {"the cotangent of the losses", 1}},
      of_share(learner),
      of_share([](const Var& losses, Communicator& comm) {
        return share(sum(losses), total_rows(comm.rows_of(losses.size())), comm);
      }),
      {
          mistake("S12", own_mean, divided(own_count)),
          mistake("S12", own_mean, divided([](const Rows& n, int r) { return std::max(own_count(n, r), 1.0); })),
          mistake("S12", mean_of_means,
                  divided([](const Rows& n, int r) { return own_count(n, r) * count_of_ranks(n); })),
          mistake("S12", mean_of_means,
                  divided([](const Rows& n, int r) { return std::max(own_count(n, r), 1.0) * count_of_ranks(n); })),
          mistake("S13", "Every rank counts as if it had as many samples as the largest.",
                  divided([](const Rows& n, int) {
                    return count_of_ranks(n) * static_cast<double>(*std::ranges::max_element(n));
                  })),
          mistake("S33", "The sum is divided by the number of ranks, not of samples.",
                  divided([](const Rows& n, int) { return count_of_ranks(n); })),
          mistake("S33", "The sum of the losses is not divided at all.", divided([](const Rows&, int) { return 1; })),
          mistake("S9", "The share is divided by the number of ranks once more.",
                  divided([](const Rows& n, int) { return count_of_all(n) * count_of_ranks(n); })),
          mistake("", "Every rank returns the whole loss. Its share is its own part of it; the objective adds all.",
                  [](const Var& losses, Communicator& comm) {
                    return all_reduce(sum(losses), comm) / count_of_all(comm.rows_of(losses.size()));
                  }),
          mistake("S1", "The losses are constants to the tape: nothing comes back.",
                  [](const Var& losses, Communicator& comm) {
                    return share(sum(losses) * 0 + sum(detach(losses)), total_rows(comm.rows_of(losses.size())), comm);
                  }),
      }};
}

}  // namespace weft::grader
