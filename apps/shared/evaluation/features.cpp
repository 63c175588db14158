// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/features.h"

#include <algorithm>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

Tensor encoded(const Tensor& inputs, const std::function<Var(Tape& tape, const Tensor& piece)>& network,
               Communicator& comm) {
  constexpr int64_t at_once = 500;
  const int64_t count = inputs.shape()[0], ranks = comm.size(), me = comm.rank().value;
  const Tensor mine = inputs.slice(count * me / ranks, count * (me + 1) / ranks);
  const int64_t rows = mine.shape()[0],
                pieces = std::max<int64_t>(1, (count + at_once * ranks - 1) / (at_once * ranks));
  Vars features;
  for (int64_t i = 0; i < pieces; ++i) {
    Tape tape;
    const Tape::Pause without_gradients(&tape);
    features.push_back(network(tape, mine.slice(rows * i / pieces, rows * (i + 1) / pieces)).value());
  }
  return comm.all_gather_v(concat(features, 0).value(), comm.rows_of(rows));
}

double accuracy(const Tensor& scores, const Tensor& labels) {
  const Tensor guesses = argmax(scores, 1).to(Device::cpu);
  return mean(equal(guesses, labels.to(Device::cpu)).to(DType::f64)).value().item();
}

}  // namespace weft
