// SPDX-License-Identifier: Apache-2.0
#pragma once
// The loss of CLIP and its gradients on one process and any device, computed by the engine's op. It is only a header,
// so that a small program needs nothing else.
#include <cmath>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::bench {

class LocalClip {
 public:
  LocalClip(int64_t pairs, int64_t width, Device device, DType dtype = DType::f32)
      : images_(rows({pairs, width}, 0, device, dtype)),
        texts_(rows({pairs, width}, 1, device, dtype)),
        targets_(Tensor::arange(pairs, DType::i64, device)),
        scale_(Tensor::full({}, 1 / 0.07, dtype, device)) {}

  void step() const {
    const int64_t pairs = targets_.size();
    Tape tape;
    const Var x = tape.watch(images_), y = tape.watch(texts_), scale = tape.watch(scale_);
    const Var sums = score_log_sum_exp_both(x, y, scale, targets_);
    const Var log_sum_exps = sum(slice(sums, 0, 0, 2 * pairs)), matches = sum(slice(sums, 0, 2 * pairs, 3 * pairs));
    tape.gradient((log_sum_exps - 2 * matches) / (2.0 * static_cast<double>(pairs)), {x, y, scale});
  }

 private:
  // Rows of approximately unit length, generated in place: temporary buffers would leave memory in the pool, whose
  // reuse would not show in the peak.
  static Tensor rows(const Shape& shape, uint64_t stream, Device device, DType dtype) {
    const double bound = std::sqrt(3.0 / static_cast<double>(shape[1]));
    return Tensor::uniform(shape, {1, stream}, -bound, bound, dtype, device);
  }

  const Tensor images_, texts_, targets_, scale_;
};

}  // namespace weft::bench
