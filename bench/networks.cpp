// SPDX-License-Identifier: Apache-2.0
#include "bench/networks.h"

#include <cmath>

#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/images.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::bench {
namespace {

const Activation relu_activation{Unary::Relu, {}};

Tensor cyclic_targets(int64_t batch, int64_t classes) {
  Tensor targets({batch}, DType::i64);
  for (int64_t i = 0; i < batch; ++i) targets.mutate<int64_t>()[i] = i % classes;
  return targets;
}

}  // namespace

const Parameter& Network::parameter(const Shape& shape, double bound) {
  const std::string name = std::to_string(parameters_.size());
  return parameters_.emplace_back(name, Tensor::uniform(shape, {1, parameters_.size()}, -bound, bound));
}

void Network::step() {
  {
    Tape tape;
    tape.backward(loss(tape), gradients_);
  }
  for (Parameter& p : parameters_) backend(p.value.device()).accumulate(-learning_rate, gradients_[p], p.value);
  gradients_.clear();
}

Mlp::Mlp(int64_t batch, int64_t in, int64_t hidden, int64_t out)
    : x(Tensor::uniform({batch, in}, {2})),
      targets(cyclic_targets(batch, out)),
      w1(parameter({in, hidden}, 0.05)),
      b1(parameter({hidden}, 0.05)),
      w2(parameter({hidden, out}, 0.05)),
      b2(parameter({out}, 0.05)) {}

Var Mlp::loss(Tape& tape) {
  const Var h = linear(tape.constant(x), tape.watch(w1), tape.watch(b1), relu_activation);
  return mean(cross_entropy(linear(h, tape.watch(w2), tape.watch(b2)), targets));
}

ConvEncoder::ConvEncoder(int64_t batch)
    : x(Tensor::uniform({batch, 28, 28, 1}, {2})),
      targets(cyclic_targets(batch, 128)),
      w1(parameter({3, 3, 1, 32}, 0.3)),
      b1(parameter({32}, 0.3)),
      w2(parameter({3, 3, 32, 64}, 0.06)),
      b2(parameter({64}, 0.06)),
      w3(parameter({7 * 7 * 64, 128}, 0.02)),
      b3(parameter({128}, 0.02)) {}

Var ConvEncoder::loss(Tape& tape) {
  const Sliding halving{.stride = {2, 2}, .padding = {1, 1}};
  Var h = conv2d(tape.constant(x), tape.watch(w1), tape.watch(b1), halving, relu_activation);
  h = conv2d(h, tape.watch(w2), tape.watch(b2), halving, relu_activation);
  return mean(cross_entropy(linear(flatten(h), tape.watch(w3), tape.watch(b3)), targets));
}

ContrastiveMlp::ContrastiveMlp(int64_t images)
    : views(Tensor::uniform({2 * images, 784}, {2})),
      others(Tensor({2 * images}, DType::i64)),
      itself(Tensor::zeros({2 * images, 2 * images})),
      w1(parameter({784, 512}, 0.05)),
      b1(parameter({512}, 0.05)),
      w2(parameter({512, 128}, 0.05)),
      b2(parameter({128}, 0.05)) {
  for (int64_t i = 0; i < 2 * images; ++i) {
    others.mutate<int64_t>()[i] = (i + images) % (2 * images);
    itself.mutate<float>()[i * 2 * images + i] = -INFINITY;
  }
}

Var ContrastiveMlp::loss(Tape& tape) {
  const Var h = linear(tape.constant(views), tape.watch(w1), tape.watch(b1), relu_activation);
  const Var z = l2_normalize(linear(h, tape.watch(w2), tape.watch(b2)));
  const Var scores = matmul(z, z, Transpose::no, Transpose::yes) * 2 + tape.constant(itself);
  return mean(cross_entropy(scores, tape.constant(others)));
}

}  // namespace weft::bench
