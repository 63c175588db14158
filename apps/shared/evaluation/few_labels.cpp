// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/few_labels.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/communicator.h"
#include "weft/data/batches.h"
#include "weft/engine/ops/index.h"

namespace weft {
namespace {

// The numbers of the drawn samples, in order.
std::vector<int64_t> drawn(const Tensor& labels, int64_t classes, int64_t per_class, uint64_t seed) {
  std::vector<int64_t> left(static_cast<size_t>(classes), per_class), chosen;
  const Epoch shuffled(labels.size(), labels.size(), seed, 0);
  for (const int64_t sample : shuffled.order())
    if (--left[static_cast<size_t>(labels.data<int64_t>()[sample])] >= 0) chosen.push_back(sample);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// This rank's part of the chosen samples, if the samples of the ranks are one part after the other.
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
  return {gather_rows(mine.rows, at).value(), gather_rows(mine.labels, at).value()};
}

}  // namespace

Draws few_label_probe(const LabelledFeatures& train, const Tensor& labels, const LabelledFeatures& test,
                      int64_t classes, int64_t per_class, int64_t draws, Random key, Communicator& comm) {
  std::vector<double> accuracies;
  Draws result;
  for (int64_t draw = 0; draw < draws; ++draw) {
    const uint64_t seed = key.fork(static_cast<uint64_t>(draw)).stream;
    LabelledFeatures few = chosen_of(train, drawn(labels, classes, per_class, seed), comm);
    accuracies.push_back(linear_probe(std::move(few), test.clone(), classes, comm));
    result.mean += accuracies.back() / static_cast<double>(draws);
  }
  double squares = 0;
  for (const double accuracy : accuracies) squares += (accuracy - result.mean) * (accuracy - result.mean);
  if (draws > 1) result.deviation = std::sqrt(squares / static_cast<double>(draws - 1));
  return result;
}

}  // namespace weft
