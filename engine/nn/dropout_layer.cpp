// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/dropout_layer.h"

#include "weft/engine/nn/init.h"
#include "weft/engine/ops/dropout.h"

namespace weft {

Var Dropout::apply(const Var& x, const Pass& pass) {
  if (!pass.training) return x;
  const int64_t sample = x.shape().product(1, x.shape().rank());
  return dropout(x, p_, named(pass.key, name_).at(static_cast<uint64_t>(pass.first_sample * sample)));
}

}  // namespace weft
