// SPDX-License-Identifier: Apache-2.0
#pragma once
// The training steps that several goals measure: forward, backward through the tape, plain gradient descent. They call
// ops directly, so that only the engine is measured. torch_steps.py has the same networks in PyTorch.
#include <deque>

#include "weft/engine/tape/tape.h"

namespace weft::bench {

class Network {
 public:
  virtual ~Network() = default;
  void step();
  virtual Var loss(Tape& tape) = 0;
  std::deque<Parameter>& parameters() { return parameters_; }

  static constexpr double learning_rate = 1e-3;

 protected:
  const Parameter& parameter(const Shape& shape, double bound);

 private:
  std::deque<Parameter> parameters_;  // a deque: parameters must not move
  Gradients gradients_;
};

// relu(x w1 + b1) w2 + b2 with cross-entropy.
struct Mlp : Network {
  Mlp(int64_t batch, int64_t in, int64_t hidden, int64_t out);
  Var loss(Tape& tape) override;

  Tensor x, targets;
  const Parameter &w1, &b1, &w2, &b2;
};

// Two 3x3 convolutions of stride 2 with relu, (28, 28, 1) to (7, 7, 64), then a linear layer to 128 with cross-entropy.
struct ConvEncoder : Network {
  explicit ConvEncoder(int64_t batch);
  Var loss(Tape& tape) override;

  Tensor x, targets;
  const Parameter &w1, &b1, &w2, &b2, &w3, &b3;
};

// 784-512-128 on two views of each image, with the normalised temperature-scaled cross-entropy of SimCLR.
struct ContrastiveMlp : Network {
  explicit ContrastiveMlp(int64_t images);
  Var loss(Tape& tape) override;

  Tensor views, others, itself;  // the views, the number of each one's partner, and minus infinity on the diagonal
  const Parameter &w1, &b1, &w2, &b2;
};

}  // namespace weft::bench
