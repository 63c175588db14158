// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the tests of cached features: two towers, and a loss that pairs all their features over all ranks.
#include "tests/support/uneven_batch.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/dropout_layer.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/accumulate/cached.h"

namespace weft {

struct Towers : Module {
  static constexpr int64_t width = 4;
  static constexpr Init init = {.key = {11}, .dtype = DType::f64};

  Linear image_in{"image.in", 3, 5, init, {.op = Unary::Tanh}}, image_out{"image.out", 5, width, init};
  Linear text{"text", 2, width, init};
  LayerNorm text_norm{"text.norm", width, init};
  Dropout dropout{"dropout", 0.5};
  Parameter temperature{"temperature", Tensor::full({}, 0.4, DType::f64)},
      bias{"bias", Tensor::full({}, -0.7, DType::f64)};
  const std::unique_ptr<BatchNorm> norm;  // for images, or null

  explicit Towers(std::unique_ptr<BatchNorm> batch_norm = nullptr) : norm(std::move(batch_norm)) {
    register_module(image_in);
    register_module(image_out);
    register_module(text);
    register_module(text_norm);
    register_parameter(temperature);
    register_parameter(bias);
    if (norm) register_module(*norm);
  }

  Features operator()(const Var& images, const Var& texts, const Pass& pass) {
    const Var h = image_in(images), pairs = dropout(norm ? (*norm)(h, pass) : h, pass);
    return {l2_normalize(image_out(pairs)), l2_normalize(dropout(text_norm(text(texts)), pass))};
  }

  // The sigmoid loss of some images, starting at index `first`, with all texts: a share of the mean over all images.
  Var loss(const Var& images, const Var& texts, int64_t first) {
    Tape& tape = *images.tape();
    const int64_t all = texts.shape()[0], own = images.shape()[0];
    const Var scaled = mul_along(texts, repeat(exp(tape.watch(temperature)), 0, width), -1);
    const Var logits =
        add_along(matmul(images, scaled, Transpose::no, Transpose::yes), repeat(tape.watch(bias), 0, all), -1);
    Tensor matches = Tensor::zeros({own, all}, DType::f64);
    for (int64_t i = 0; i < own; ++i) matches.mutate<double>()[i * all + first + i] = 1;
    return sum(softplus(logits) - logits * constant_like(matches, images)) / static_cast<double>(all);
  }
};

// The whole batch on one tape of one process. Returns the loss.
inline double whole_step(Towers& towers, Gradients& gradients, const Communicator& comm) {
  Tape tape;
  const Var images = tape.constant(everyones(comm, UnevenBatch::images)),
            texts = tape.constant(everyones(comm, UnevenBatch::texts));
  const Features features = towers(images, texts, training);
  const Var loss = towers.loss(features[0], features[1], 0);
  tape.backward(loss, gradients);
  return loss.value().item();
}

// The same with cached features, as in a user's program. Returns this rank's share of the loss.
struct CachedStep {
  Towers& towers;
  Communicator& comm;
  MicroBatches batch{UnevenBatch::rows(number(comm)), comm};

  Features encode(int64_t i, Tape& tape) {
    Pass pass = training;
    pass.first_sample = batch.first_sample(i);
    const int me = number(comm);
    return towers(tape.constant(batch.part(UnevenBatch::images(me), i)),
                  tape.constant(batch.part(UnevenBatch::texts(me), i)), pass);
  }
  Var loss(const Features& all) {
    return towers.loss(all[0], all_gather_v(all[1], batch.rows(), comm), batch.first_sample());
  }
  double operator()(Gradients& gradients, const std::function<void()>& before_last = {}) {
    return run(batch.count(), gradients, before_last);
  }
  double run(int64_t micro_batches, Gradients& gradients, const std::function<void()>& before_last = {},
             Recompute recompute = Recompute::yes) {
    return cached_backward(
               micro_batches, [this](int64_t i, Tape& tape) { return encode(i, tape); },
               [this](Tape&, const Features& all) { return loss(all); }, gradients, before_last, recompute)
        .item();
  }
};

}  // namespace weft
