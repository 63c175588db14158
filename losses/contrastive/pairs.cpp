// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/pairs.h"

#include <numeric>

#include "weft/losses/common/precision.h"

namespace weft {

static const Var& checked(const Var& features, const Var& others) {
  require(features.shape().rank() == 2 && features.shape() == others.shape() && features.dtype() == others.dtype(),
          "features of pairs are (b, d) on both sides, not ", features.dtype(), " ", features.shape(), " and ",
          others.dtype(), " ", others.shape());
  return features;
}

Pairs::Pairs(const Var& first, const Var& second, Communicator& comm, Site site)
    : first(precise(checked(first, second))), second(precise(second)), division(first.shape()[0], comm, site) {}

Tensor Pairs::numbers() const {
  Tensor all({division.mine()}, DType::i64);
  std::iota(all.mutate<int64_t>(), all.mutate<int64_t>() + all.size(), division.first);
  return all;
}

void expect_scalar(const char* what, const Var& scalar, const Var& features) {
  require(scalar.shape() == Shape() && scalar.dtype() == features.dtype(), what, " is a scalar of ", features.dtype(),
          ", not ", scalar.dtype(), " ", scalar.shape(),
          scalar.dtype() == DType::bf16 ? "; make the module that learns it f32" : "");
}

}  // namespace weft
