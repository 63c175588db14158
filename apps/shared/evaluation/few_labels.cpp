// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/few_labels.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "weft/collectives/communicator.h"
#include "weft/collectives/share.h"
#include "weft/data/batches.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

namespace weft {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Of the mean squared length of a sample: what is added to the squares of the singular values.
constexpr double penalty = 0.1;

// The numbers of the drawn samples, in order.
std::vector<int64_t> drawn(const Tensor& labels, int64_t classes, int64_t per_class, uint64_t seed) {
  std::vector<int64_t> left(static_cast<size_t>(classes), per_class), chosen;
  const Epoch shuffled(labels.size(), labels.size(), seed, 0);
  for (const int64_t sample : shuffled.order())
    if (--left[static_cast<size_t>(labels.data<int64_t>()[sample])] >= 0) chosen.push_back(sample);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// The chosen samples of all ranks, if the samples of the ranks are one part after the other.
LabelledFeatures chosen_of(const LabelledFeatures& mine, const std::vector<int64_t>& chosen, Communicator& comm) {
  const Rows rows = comm.rows_of(mine.rows.shape()[0]);
  int64_t first = 0;
  for (int r = 0; r < comm.rank().value; ++r) first += rows[static_cast<size_t>(r)];
  const int64_t last = first + mine.rows.shape()[0];
  std::vector<int64_t> places;
  for (const int64_t sample : chosen)
    if (first <= sample && sample < last) places.push_back(sample - first);
  Tensor at({static_cast<int64_t>(places.size())}, DType::i64);
  std::copy(places.begin(), places.end(), at.mutate<int64_t>());
  at = at.to(mine.rows.device());
  const Rows parts = comm.rows_of(std::ssize(places));
  return {comm.all_gather_v(gather_rows(mine.rows, at).value(), parts),
          comm.all_gather_v(gather_rows(mine.labels, at).value(), parts)};
}

// (features, classes)
Tensor weights_for(const LabelledFeatures& samples, int64_t classes) {
  const Tensor rows = samples.rows.to(Device::cpu).to(DType::f64), labels = samples.labels.to(Device::cpu);
  const int64_t count = rows.shape()[0], width = rows.shape()[1];
  const Eigen::Map<const Matrix> x(rows.data<double>(), count, width);
  Matrix targets = Matrix::Zero(count, classes);
  for (int64_t i = 0; i < count; ++i) targets(i, labels.data<int64_t>()[i]) = 1;
  targets.rowwise() -= targets.colwise().mean().eval();
  const bool few = count < width;  // then the product of samples is the smaller one
  Matrix product = few ? Matrix(x * x.transpose()) : Matrix(x.transpose() * x);
  product.diagonal().array() += penalty * x.squaredNorm() / static_cast<double>(count) + 1e-12;
  Tensor weights({width, classes}, DType::f64);
  Eigen::Map<Matrix> result(weights.mutate<double>(), width, classes);
  if (few)
    result = x.transpose() * product.llt().solve(targets);
  else
    result = product.llt().solve(x.transpose() * targets);
  return weights.to(samples.rows.dtype()).to(samples.rows.device());
}

}  // namespace

Draws few_label_probe(LabelledFeatures&& train, const Tensor& labels, LabelledFeatures&& test, int64_t classes,
                      int64_t per_class, int64_t draws, Random key, Communicator& comm) {
  standardize(train.rows, test.rows, static_cast<double>(labels.size()), comm);
  std::vector<double> accuracies;
  Draws result;
  for (int64_t draw = 0; draw < draws; ++draw) {
    const uint64_t seed = key.fork(static_cast<uint64_t>(draw)).stream;
    const LabelledFeatures few = chosen_of(train, drawn(labels, classes, per_class, seed), comm);
    const Tensor guesses = argmax(matmul(test.rows, weights_for(few, classes)).value(), 1);
    accuracies.push_back(accuracy_of(guesses, test.labels, comm));
    result.mean += accuracies.back() / static_cast<double>(draws);
  }
  double squares = 0;
  for (const double accuracy : accuracies) squares += (accuracy - result.mean) * (accuracy - result.mean);
  if (draws > 1) result.deviation = std::sqrt(squares / static_cast<double>(draws - 1));
  return result;
}

}  // namespace weft
