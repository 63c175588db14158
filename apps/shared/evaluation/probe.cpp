// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/probe.h"

#include <cmath>

#include "weft/collectives/share.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"
#include "weft/optim/schedules.h"

namespace weft {
namespace {

struct Scaling {
  Tensor mean, deviation;  // of each feature
  Tensor operator()(const Tensor& rows) const { return div_along(sub_along(rows, mean, -1), deviation, -1).value(); }
};

Tensor sum_of_all(const Var& rows, Communicator& comm) { return comm.all_reduce(sum(rows, 0).value()); }

Scaling scaling_of(const Tensor& rows, double samples, Communicator& comm) {
  const Tensor mean = (Var(sum_of_all(rows, comm)) / samples).value();
  const Tensor squares = sum_of_all(square(sub_along(rows, mean, -1)), comm);
  return {mean, sqrt(Var(squares) / samples + 1e-6).value()};
}

double accuracy_of(const Tensor& guesses, const Tensor& labels, Communicator& comm) {
  double right = 0;
  const Tensor mine = guesses.to(Device::cpu), truth = labels.to(Device::cpu);
  for (int64_t i = 0; i < truth.size(); ++i) right += mine.data<int64_t>()[i] == truth.data<int64_t>()[i];
  return sum_over_ranks(right, comm) / sum_over_ranks(static_cast<double>(truth.size()), comm);
}

}  // namespace

// The problem is convex and small, so every step uses all samples.
double linear_probe(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes, Communicator& comm) {
  constexpr int64_t steps = 200;
  const double samples = sum_over_ranks(static_cast<double>(train.rows.shape()[0]), comm);
  const Scaling scaled = scaling_of(train.rows, samples, comm);
  const Tensor features = scaled(train.rows);
  Linear classifier("probe", features.shape()[1], classes,
                    {.key = {}, .dtype = features.dtype(), .device = features.device()});
  classifier.weight.value = Tensor::zeros(classifier.weight.value.shape(), features.dtype(), features.device());
  DataParallel training({{classifier.parameters(), Adam{}}}, comm);
  const Schedule rate = cosine(0.02, 0, steps);
  for (int64_t step = 0; step < steps; ++step) {
    Tape tape;
    const Var losses = cross_entropy(classifier(tape.constant(features)), tape.constant(train.labels));
    tape.backward(share(sum(losses), static_cast<int64_t>(samples), comm), training.gradients());
    training.step(rate(step));
  }
  return accuracy_of(argmax(classifier(scaled(test.rows)).value(), 1), test.labels, comm);
}

double nearest_neighbours(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes,
                          int64_t neighbours, Communicator& comm) {
  const Rows rows = comm.rows_of(train.rows.shape()[0]);
  const Tensor known = l2_normalize(comm.all_gather_v(train.rows, rows)).value();
  const Tensor truth = one_hot(comm.all_gather_v(train.labels, rows), classes, known.dtype()).value();
  const Tensor queries = l2_normalize(test.rows).value();
  constexpr int64_t at_once = 256;  // test samples whose similarities are in memory together
  Tensor guesses(Shape{queries.shape()[0]}, DType::i64, queries.device());
  for (int64_t begin = 0; begin < guesses.size(); begin += at_once) {
    const int64_t end = std::min(begin + at_once, guesses.size());
    const TopK nearest = top_k(matmul(queries.slice(begin, end), known, Transpose::no, Transpose::yes), neighbours);
    const Var votes = gather_rows(truth, nearest.indices);  // (samples, neighbours, classes)
    const Var weights = repeat(exp(nearest.values / 0.1), 2, classes);
    Tensor some = guesses.slice(begin, end);
    some.copy_from(argmax(sum(votes * weights, 1).value(), 1));
  }
  return accuracy_of(guesses, test.labels, comm);
}

}  // namespace weft
