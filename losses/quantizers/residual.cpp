// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/residual.h"

#include <algorithm>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {
namespace {

// Each quantizer draws from its own random stream.
Random stream(const Random& key, int64_t layer) { return key.fork(static_cast<uint64_t>(layer) + 1); }

}  // namespace

ResidualQuantizer::ResidualQuantizer(Layers layers, const QuantizerDropout& dropout, const char* kind)
    : Quantizer(kind), layers_(std::move(layers)), dropout_(dropout) {
  const auto all = static_cast<int64_t>(layers_.size());
  require(all > 0, "ResidualQuantizer: no quantizers");
  require(dropout.least >= 0 && dropout.least <= all && dropout.multiple_of > 0,
          "ResidualQuantizer: dropout to at least ", dropout.least, " of ", all, " quantizers, in multiples of ",
          dropout.multiple_of);
  for (const auto& layer : layers_) register_module(*layer);
}

int64_t ResidualQuantizer::used(const Pass& pass) const {
  const auto all = static_cast<int64_t>(layers_.size());
  if (!pass.training || dropout_.least == 0) return all;
  const double drawn = uniform_draw<double>(stream(pass.key, -1), 0) * static_cast<double>(all - dropout_.least + 1);
  const int64_t used = dropout_.least + static_cast<int64_t>(drawn), unit = dropout_.multiple_of;
  return std::min(all, (used + unit - 1) / unit * unit);
}

Quantized ResidualQuantizer::quantize(const Var& x, int64_t used, const Pass& pass, Communicator& comm, const Var& mask,
                                      Site caller) {
  const Tokens tokens(x, x.shape()[-1], mask);
  if (pass.training) used_since_update_ = std::max(used_since_update_, used);
  Var residual = prepared(tokens.rows()), values, loss;
  Vars indices;
  for (int64_t i = 0; i < used; ++i) {
    Pass own = pass;
    own.key = stream(pass.key, i);
    const Quantized q = part(*layers_[static_cast<size_t>(i)], residual, own, comm, {}, caller);
    const Var found = detach(q.values);
    residual = residual - found;
    values = i == 0 ? q.values : values + found;
    loss = i == 0 ? q.loss : loss + q.loss;
    indices.push_back(q.indices);
  }
  indices.resize(layers_.size(), constant_like(Tensor::full(indices[0].shape(), -1, DType::i64, x.device()), x));
  return tokens.back(values, stack(indices, -1).value(), loss);
}

Var ResidualQuantizer::decoded(const Var& indices) {
  const int64_t given = indices.shape()[-1];
  require(given > 0 && given <= static_cast<int64_t>(layers_.size()), "indices ", indices.shape(), " for ",
          layers_.size(), " quantizers");
  Var values;
  for (int64_t i = 0; i < given; ++i) {
    const Var index = reshape(slice(indices, -1, i, i + 1), indices.shape().without(-1));
    const Tensor zero = Tensor::zeros(index.shape(), DType::i64, index.device());
    Tensor code = Tensor::like(zero);
    backend(index.device()).binary(Binary::Maximum, index.value(), zero, code);
    const Var decoded = decoded_part(*layers_[static_cast<size_t>(i)], constant_like(code, index));
    const Tensor used = repeat(greater_equal(index.value(), zero), -1, decoded.shape()[-1]).value();
    const Var nothing = constant_like(Tensor::zeros(decoded.shape(), decoded.dtype(), decoded.device()), decoded);
    const Var part = where(constant_like(used, index), decoded, nothing);
    values = i == 0 ? part : values + part;
  }
  return values;
}

void ResidualQuantizer::count(Communicator& comm, Site caller) {
  for (int64_t i = 0; i < used_since_update_; ++i) add_up_part(*layers_[static_cast<size_t>(i)], comm, caller);
}

void ResidualQuantizer::learn(Communicator& comm, const Random& key, Site caller) {
  for (int64_t i = 0; i < used_since_update_; ++i)
    update_part(*layers_[static_cast<size_t>(i)], comm, stream(key, i), caller);
  used_since_update_ = 0;
}

}  // namespace weft
