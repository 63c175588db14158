// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/probe.h"

#include <algorithm>
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

// Replaces rows by `change` of them, a part at a time, which needs little more memory.
template <class F> void change_rows(Tensor& rows, const F& change) {
  constexpr int64_t at_once = 4096;
  for (int64_t begin = 0, count = rows.shape()[0]; begin < count; begin += at_once) {
    Tensor part = rows.slice(begin, std::min(begin + at_once, count));
    part.copy_from(change(part).value());
  }
}

Tensor sum_of_all(const Var& rows, Communicator& comm) { return comm.all_reduce(sum(rows, 0).value()); }

}  // namespace

void standardize(Tensor& train, Tensor& test, double samples, Communicator& comm) {
  const auto change_both = [&](const auto& change) {
    change_rows(train, change);
    change_rows(test, change);
  };
  const Tensor mean = (Var(sum_of_all(train, comm)) / samples).value();
  change_both([&](const Tensor& part) { return sub_along(part, mean, -1); });
  const Tensor squares = sum_of_all(square(train), comm), deviation = sqrt(Var(squares) / samples + 1e-6).value();
  change_both([&](const Tensor& part) { return div_along(part, deviation, -1); });
}

double accuracy_of(const Tensor& guesses, const Tensor& labels, Communicator& comm) {
  double right = 0;
  const Tensor mine = guesses.to(Device::cpu), truth = labels.to(Device::cpu);
  for (int64_t i = 0; i < truth.size(); ++i) right += mine.data<int64_t>()[i] == truth.data<int64_t>()[i];
  return sum_over_ranks(right, comm) / sum_over_ranks(static_cast<double>(truth.size()), comm);
}

// The problem is convex and small, so every step uses all samples.
double linear_probe(LabelledFeatures&& train, LabelledFeatures&& test, int64_t classes, Communicator& comm) {
  constexpr int64_t steps = 200;
  const double samples = sum_over_ranks(static_cast<double>(train.rows.shape()[0]), comm);
  standardize(train.rows, test.rows, samples, comm);
  const Tensor& features = train.rows;
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
  return accuracy_of(argmax(classifier(test.rows).value(), 1), test.labels, comm);
}

double nearest_neighbours(const LabelledFeatures& train, const LabelledFeatures& test, int64_t classes,
                          int64_t neighbours, Communicator& comm) {
  const Rows rows = comm.rows_of(train.rows.shape()[0]);
  Tensor known = comm.all_gather_v(train.rows, rows);
  change_rows(known, [](const Tensor& part) { return l2_normalize(part); });
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
