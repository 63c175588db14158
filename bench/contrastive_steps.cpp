// SPDX-License-Identifier: Apache-2.0
#include "bench/contrastive_steps.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/normalize.h"
#include "weft/losses/contrastive/clip.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/losses/contrastive/siglip.h"

namespace weft::bench {

static Tensor unit_rows(int64_t pairs, Communicator& comm, uint64_t stream) {
  const auto rank = static_cast<uint64_t>(comm.rank().value);
  return l2_normalize(Tensor::normal({pairs, ContrastiveBatch::width}, {1, 2 * rank + stream})).value();
}

ContrastiveBatch::ContrastiveBatch(int64_t pairs, Communicator& comm)
    : comm_(comm),
      first_(unit_rows(pairs, comm, 0)),
      second_(unit_rows(pairs, comm, 1)),
      scale_(Tensor::full({}, 1 / 0.07)),
      bias_(Tensor::full({}, -10)) {}

template <class Loss> void ContrastiveBatch::step(const Loss& loss) {
  Tape tape;
  declare_group(tape, comm_);
  const auto everywhere = [&](const Tensor& x) { return with_placement(tape.watch(x), comm_, Placement::replicated); };
  const std::vector<Var> x{tape.watch(first_), tape.watch(second_), everywhere(scale_), everywhere(bias_)};
  tape.gradient(loss(x), x);
}

void ContrastiveBatch::clip() {
  step([&](const std::vector<Var>& x) { return clip_loss(x[0], x[1], x[2], {}, comm_); });
}
void ContrastiveBatch::siglip() {
  step([&](const std::vector<Var>& x) { return siglip_loss(x[0], x[1], x[2], x[3], {}, comm_); });
}
void ContrastiveBatch::nt_xent() {
  step([&](const std::vector<Var>& x) { return weft::nt_xent(x[0], x[1], {.temperature = 0.07}, comm_); });
}

}  // namespace weft::bench
