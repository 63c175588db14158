// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/evaluation/reconstruction.h"

#include <algorithm>

#include "apps/shared/evaluation/exact_sum.h"
#include "apps/shared/report/picture.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

struct Reconstructed {
  Tensor images, made;
  Tensor indices;  // of the codes
};

// At most `count` pictures from `first` on.
Reconstructed reconstruct(VqVae& network, const LabelledImages& data, int64_t first, int64_t count, const Init& like,
                          Communicator& comm) {
  const int64_t begin = std::min(first, data.count()), end = std::min(begin + count, data.count());
  const Tensor images = take(data, samples_between(begin, end), like.dtype).images.to(like.device);
  Tape tape;
  const Tape::Pause without_gradients(&tape);
  const auto [made, tokens] = network(tape.constant(images), {}, comm);
  return {images, made.value(), tokens.indices.value()};
}

}  // namespace

// All ranks make the same number of calls, since the network may contain collectives.
double reconstruction_error(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm,
                            CodeUsage* usage) {
  constexpr int64_t at_once = 100;
  ExactSum sum_of_squares({}, like.device);
  for (int64_t begin = 0; begin < data.count(); begin += at_once * comm.size()) {
    const Reconstructed some = reconstruct(network, data, begin + at_once * comm.rank().value, at_once, like, comm);
    sum_of_squares.add(sum(square(precise(Var(some.made) - some.images))).value());
    if (usage) usage->add(some.indices);
  }
  if (usage) usage->over(comm);
  return sum_of_squares.over(comm).item() / static_cast<double>(data.images.size());
}

Tensor beside_originals(VqVae& network, const LabelledImages& data, const Init& like, Communicator& comm) {
  constexpr int64_t columns = 12, rows = 3;
  Vars all;
  for (int64_t row = 0; row < rows; ++row) {
    const Reconstructed some = reconstruct(network, data, row * columns, columns, like, comm);
    all.insert(all.end(), {some.images, some.made});
  }
  return grid(as_pixels(concat(all, 0).value()), columns);
}

}  // namespace weft
