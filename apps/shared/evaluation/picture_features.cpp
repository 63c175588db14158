// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/picture_features.h"

#include <algorithm>

#include "weft/engine/ops/shape_ops.h"

namespace weft {

LabelledFeatures features_of(const LabelledImages& data, Layer* encoder, const Init& like, Communicator& comm) {
  const int64_t ranks = comm.size(), me = comm.rank().value, at_once = 500;
  const int64_t first = data.count() * me / ranks, last = data.count() * (me + 1) / ranks;
  const int64_t pieces = (data.count() / ranks + at_once) / at_once;
  LabelledFeatures all{.rows = {}, .labels = Tensor({last - first}, DType::i64, like.device)};
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = std::min(first + i * at_once, last), end = std::min(begin + at_once, last);
    const Batch batch = take(data, samples_between(begin, end), like.dtype);
    Tape tape;
    const Tape::Pause without_gradients(&tape);
    const Var images = tape.constant(batch.images.to(like.device));
    const Tensor rows = (encoder ? (*encoder)(images) : flatten(images)).value();
    if (i == 0) all.rows = Tensor({last - first, rows.shape()[1]}, rows.dtype(), rows.device());
    all.rows.slice(begin - first, end - first).copy_from(rows);
    all.labels.slice(begin - first, end - first).copy_from(batch.labels);
  }
  return all;
}

double probe(const Pictures& data, Layer* encoder, const Init& like, Communicator& comm) {
  return linear_probe(features_of(data.train, encoder, like, comm), features_of(data.test, encoder, like, comm),
                      data.count_of_classes(), comm);
}

}  // namespace weft
