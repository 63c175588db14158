// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/tokens.h"

#include <algorithm>
#include <numeric>

#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/precision.h"

namespace weft {

Tokens::Tokens(const Var& x, int64_t dim, const Var& mask) : x_(x) {
  require(x.defined() && is_floating(x.dtype()) && x.shape().rank() > 1 && x.shape()[-1] == dim, "(samples, ..., ", dim,
          ") of a floating type is needed, not ", x.dtype(), " ", x.shape());
  const Shape front = x.shape().without(-1);
  all_ = rows_ = precise(reshape(x, {front.size(), dim}));
  if (!mask.defined()) return;
  require(mask.dtype() == DType::u8 && mask.shape() == front, "the mask of ", x.shape(), " is u8 ", front, ", not ",
          mask.dtype(), " ", mask.shape());
  const Tensor counts = mask.value().to(Device::cpu);
  const auto* count = counts.data<uint8_t>();
  const int64_t tokens = front.size(), counted = tokens - std::count(count, count + tokens, 0);
  Tensor chosen({counted}, DType::i64), places({tokens}, DType::i64);
  auto* next = chosen.mutate<int64_t>();
  auto* place = places.mutate<int64_t>();
  for (int64_t token = 0, row = 0; token < tokens; ++token) {
    place[token] = count[token] ? row++ : counted + token;
    if (count[token]) *next++ = token;
  }
  places_ = constant_like(places.to(x.device()), x);
  rows_ = gather_rows(all_, constant_like(chosen.to(x.device()), x));
}

int64_t Tokens::total(Communicator& comm, Site site) const {
  const Rows rows = comm.rows_of(rows_.shape()[0], site);
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

Quantized Tokens::back(const Var& values, const Tensor& indices, const Var& loss) const {
  Var every = values, which = constant_like(indices, x_);
  if (places_.defined()) {
    const Tensor none = Tensor::full(indices.shape().with(0, all_.shape()[0]), -1, DType::i64, x_.device());
    every = gather_rows(concat({values, all_}, 0), places_);
    which = gather_rows(concat({which, constant_like(none, x_)}, 0), places_);
  }
  every = reshape(every, x_.shape());
  Shape each = x_.shape().without(-1);
  for (int axis = 1; axis < indices.shape().rank(); ++axis) each = each.with_inserted(-1, indices.shape()[axis]);
  return {every.dtype() == x_.dtype() ? every : cast(every, x_.dtype()), reshape(which, each), loss};
}

Var no_loss(const Var& x, Communicator& comm) {
  const DType dtype = x.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor zero = Tensor::zeros({}, dtype, x.device());
  return as_partial(x.tape() ? x.tape()->constant(zero) : Var(zero), comm);
}

Var per_feature(const std::vector<double>& values, const Var& like) {
  const auto features = static_cast<int64_t>(values.size());
  return replicated_constant(Tensor::from({features}, values, like.dtype(), like.device()));
}

}  // namespace weft
