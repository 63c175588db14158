// SPDX-License-Identifier: Apache-2.0
// Sharded parameters train to the same weights as replicated ones.
#include <optional>

#include "tests/support/on_ranks.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/dropout_layer.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/sequential.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"
#include "weft/optim/parallel/sharded.h"

namespace weft {
namespace test_sharded {

using Call = std::function<Var(Layer& layer, const Var& x, const Pass& pass)>;  // of a unit
using Rules = std::pair<Rule, std::optional<Rule>>;  // for weights, and for all others if they are a group of their own

constexpr int steps = 20;
const Rules adamw = {AdamW{.weight_decay = 0.1}, AdamW{.weight_decay = 0}};
const Rules sgd = {Sgd{.momentum = 0.9, .weight_decay = 0.1}, {}};
const Rules lamb = {Lamb{}, Lamb{.adapt = false}};

struct Network {
  int64_t unused_steps = 10;
  virtual ~Network() = default;
  virtual std::vector<Layer*> units() = 0;
  // This rank's data, which differ by rank and step.
  virtual void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) = 0;

  std::vector<Parameter*> list(std::vector<Parameter*> (Module::*of)() const) {
    std::vector<Parameter*> all;
    for (Layer* unit : units())
      for (Parameter* parameter : (unit->*of)()) all.push_back(parameter);
    return all;
  }
  std::vector<ParameterGroup> groups(const Rules& rules) {
    std::vector<ParameterGroup> groups = {{.parameters = {}, .rule = rules.first, .unused_steps = unused_steps}};
    if (rules.second)
      groups.push_back({.parameters = {}, .rule = *rules.second, .rate_scale = 0.5, .unused_steps = unused_steps});
    for (Parameter* parameter : list(&Module::parameters))
      groups[rules.second && parameter->value.shape().rank() < 2].parameters.push_back(parameter);
    return groups;
  }
};

Tensor data(int step, Communicator& comm, const Shape& shape, DType dtype, int use = 0) {
  return data_of(number(comm), shape, 10 * step + use, dtype);
}
Var share(const Var& y, double scale = 0.1) { return sum(square(y)) * scale; }

// Weights straddle ranks, and most ranks have no part of the biases.
struct Perceptron : Network {
  Init init;
  Linear first{"first", 5, 300, init, {.op = Unary::Tanh}}, second{"second", 300, 40, init, {.op = Unary::Tanh}},
      last{"last", 40, 3, init};
  explicit Perceptron(DType dtype) : init{.key = {7}, .dtype = dtype} {}
  std::vector<Layer*> units() override { return {&first, &second, &last}; }
  Var outputs(const Var& x, const Call& call) { return call(last, call(second, call(first, x, {}), {}), {}); }
  void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
    Tape tape;
    tape.backward(share(outputs(tape.constant(data(step, comm, {4, 5}, init.dtype)), call)), gradients);
  }
};

struct Images : Network {
  Init init;
  Sequential net{"net"};
  Linear last{"last", 6, 3, init};
  Images(DType dtype, Communicator& comm) : init{.key = {7}, .dtype = dtype} {
    net.add<Conv2d>(2, 6, YX{3, 3}, init);
    net.add<DistributedBatchNorm>(6, init, comm);
    net.then([](const Var& x) { return relu(x); });
    net.add<Dropout>(0.3);
  }
  std::vector<Layer*> units() override { return {&net, &last}; }
  void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
    Tape tape;
    const int64_t images = 2 + number(comm) % 2;
    const Pass pass = {.training = true, .key = {3, static_cast<uint64_t>(step)}, .first_sample = 3 * number(comm)};
    const Var x = tape.constant(data(step, comm, {images, 6, 6, 2}, init.dtype));
    const Var y = call(net, x, pass);
    tape.backward(share(call(last, reshape(y, {y.size() / 6, 6}), pass)), gradients);
  }
};

const Call plainly = [](Layer& layer, const Var& x, const Pass& pass) { return layer(x, pass); };
Call with_units_of(Sharded& sharded) {
  return [&](Layer& layer, const Var& x, const Pass& pass) {
    return sharded.run(sharded.unit(layer.parameters()), x, [&layer, pass](const Var& x) { return layer(x, pass); });
  };
}

using Comparison = std::function<void(const Tensor& actual, const Tensor& expected)>;
const Comparison same_bits = [](const Tensor& a, const Tensor& b) { expect_same_bits(a, b); };
const Comparison close = [](const Tensor& a, const Tensor& b) { expect_close(a, b); };

// Trains one of two equal networks at stage 0, and the other one sharded.
void expect_equal_training(Network& whole, Network& divided, const Rules& rules, Communicator& comm,
                           const Comparison& equal, double max_norm = 0.5) {
  DataParallel training(whole.groups(rules), comm);
  Sharded sharded(divided.groups(rules), comm);
  for (int step = 0; step < steps; ++step) {
    whole.backward(step, comm, plainly, training.gradients());
    divided.backward(step, comm, with_units_of(sharded), sharded.gradients());
    const double rate = 0.01 / (1 + step);
    const double norm = training.step(rate, max_norm), same = sharded.step(rate, max_norm);
    equal(scalar(same), scalar(norm));
  }
  const std::vector<Parameter*> expected = whole.list(&Module::parameters), actual = divided.list(&Module::parameters);
  for (size_t i = 0; i < expected.size(); ++i) equal(sharded.whole(*actual[i]), expected[i]->value);
  const std::vector<Parameter*> averages = whole.list(&Module::buffers), same = divided.list(&Module::buffers);
  for (size_t i = 0; i < averages.size(); ++i) equal(same[i]->value, averages[i]->value);
}

template <class N, class... More>
void expect_equal_training(DType dtype, const Rules& rules, const Comparison& equal, const More&... more) {
  INFO(text(dtype) << " " << name(rules.first));
  on_ranks({1, 2, 3, 4, 8}, [&](Communicator& comm) {
    const auto network = [&] {
      if constexpr (std::is_constructible_v<N, DType, Communicator&>)
        return N(dtype, comm);
      else
        return N(dtype);
    };
    N whole = network(), divided = network();
    expect_equal_training(whole, divided, rules, comm, equal, more...);
  });
}

TEST_CASE("sharded parameters train to the same bits as replicated ones") {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const Rules& rules : {adamw, sgd, lamb}) expect_equal_training<Perceptron>(dtype, rules, same_bits);
  expect_equal_training<Perceptron>(DType::f32, adamw, same_bits, std::numeric_limits<double>::infinity());
}

TEST_CASE("sharded training updates batch statistics once and draws the same dropout in the recomputation") {
  for (const DType dtype : {DType::f64, DType::f32}) expect_equal_training<Images>(dtype, adamw, same_bits);
}

TEST_CASE("a sharded unit used twice in one forward gets the gradients of both uses") {
  struct Twice : Perceptron {
    Linear middle{"middle", 40, 40, init, {.op = Unary::Tanh}};
    using Perceptron::Perceptron;
    std::vector<Layer*> units() override { return {&first, &second, &middle, &last}; }
    void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
      Tape tape;
      Var y = call(second, call(first, tape.constant(data(step, comm, {4, 5}, init.dtype)), {}), {});
      y = call(middle, y + call(middle, y, {}), {});
      tape.backward(share(call(last, y, {})), gradients);
    }
  };
  expect_equal_training<Twice>(DType::f64, sgd, close);
}

TEST_CASE("several losses and micro-batches add up to one sharded step") {
  struct Several : Perceptron {
    using Perceptron::Perceptron;
    void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
      for (int batch = 0; batch < 3; ++batch) {
        Tape tape;
        const Var x = tape.constant(data(step, comm, {4, 5}, init.dtype, batch));
        const Var codes = call(second, call(first, x, {}), {});
        tape.backward(share(codes, 0.01), gradients, Keep::tape);  // this loss does not depend on the last layer
        tape.backward(share(call(last, codes, {})), gradients);
      }
    }
  };
  expect_equal_training<Several>(DType::f64, sgd, close);
  expect_equal_training<Several>(DType::f64, adamw, close);
}

TEST_CASE("sharded parameters can have fewer elements than there are ranks, none, or be unused") {
  struct Few : Network, Layer {
    Parameter factor, nothing, unused, sometimes;
    const DType dtype;
    explicit Few(DType dtype)
        : factor("factor", Tensor::full({}, 0.5, dtype)),
          nothing("nothing", Tensor({0, 2}, dtype)),
          unused("unused", Tensor::full({3, 2}, 2, dtype)),
          sometimes("sometimes", Tensor::full({1}, 2, dtype)),
          dtype(dtype) {
      unused_steps = 0;
      register_parameter(factor);
      register_parameter(nothing);
      register_parameter(unused);
      register_parameter(sometimes);
    }
    Var apply(const Var& x, const Pass&) override {
      const Var y = mul_along(x, reshape(bind(x, factor), {1}), 1);
      return x.value().values()[0] > 0.7 ? mul_along(y, bind(x, sometimes), 1) : y;  // true on some ranks only
    }
    std::vector<Layer*> units() override { return {this}; }
    void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
      Tape tape;
      tape.backward(share(call(*this, tape.constant(data(step, comm, {4, 1}, dtype)), {})), gradients);
    }
  };
  for (const DType dtype : {DType::f64, DType::f32}) expect_equal_training<Few>(dtype, adamw, same_bits);
}

TEST_CASE("second-order gradients go through a sharded unit") {
  struct Penalty : Perceptron {
    using Perceptron::Perceptron;
    void backward(int step, Communicator& comm, const Call& call, Gradients& gradients) override {
      Tape tape;
      const Var x = tape.watch(data(step, comm, {4, 5}, init.dtype)), loss = share(outputs(x, call));
      const Var slope = tape.gradient(loss, {x}, Graph::create)[0];
      tape.backward(loss + share(slope), gradients);
    }
  };
  expect_equal_training<Penalty>(DType::f64, sgd, close);
}

}  // namespace test_sharded
}  // namespace weft
