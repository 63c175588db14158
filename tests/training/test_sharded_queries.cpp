// SPDX-License-Identifier: Apache-2.0
// Gradient queries for sharded parameters: Sharded::gradient.
#include "tests/support/sharded_network.h"
#include "weft/engine/ops/matmul.h"

namespace weft {
namespace {

TEST_CASE("gradient queries for a sharded parameter sum over ranks and leave the next backward unchanged") {
  on_ranks([](Communicator& comm) {
    Deep plain(3, 40, Bias::yes, DType::f64), network(3, 40, Bias::yes, DType::f64);
    Sharded sharded({{network.parameters(), AdamW{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    const Tensor x = data_of(number(comm), {number(comm), 40});
    // Every unit is used twice, one of them with another nested in it.
    const auto around = [&](const Var& x) {
      const auto first = [&](const Var& x) { return (*network.layers[0])(x); };
      return (*network.layers[2])(sharded.run(units[0], x, first));
    };
    const auto divided = [&](Tape& tape) {
      const Var twice = network(network(tape.constant(x), sharded, units), sharded, units);
      return loss_of(sharded.run(units[2], twice, around));
    };
    Tape whole, unasked, mine;
    Var y = whole.constant(x);
    for (const size_t i : {0, 1, 2, 0, 1, 2, 0, 2}) y = (*plain.layers[i])(y);
    unasked.backward(divided(unasked), sharded.gradients());
    std::vector<Tensor> expected;
    for (Parameter* parameter : network.parameters()) expected.push_back(sharded.gradient_of(*parameter).clone());
    sharded.discard();

    const Var loss = divided(mine);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor answer = sharded.gradient(loss, *network.parameters()[i]);
      const Var share = whole.gradient(loss_of(y), {whole.watch(*plain.parameters()[i])})[0];
      expect_close(comm.all_reduce(answer), comm.all_reduce(share.value()));
      expect(!sharded.gradient_of(*network.parameters()[i]).defined(), "there is a gradient");
    }
    mine.backward(loss, sharded.gradients());
    for (size_t i = 0; i < expected.size(); ++i)
      expect_same_bits(sharded.gradient_of(*network.parameters()[i]), expected[i]);
    expect_refusal([&] { sharded.gradient(loss, *plain.parameters()[0]); }, {"layer0.weight is not among"});
  });
}

TEST_CASE("a sharded parameter that was only queried does not change in the next step") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Deep network(1, 6, Bias::yes, DType::f64);
    Linear& layer = *network.layers[0];
    Sharded sharded({{network.parameters(), AdamW{.weight_decay = 0.5}}}, comm);
    sharded.set(layer.bias, Tensor::full({6}, 2, DType::f64));
    const Tensor weight = sharded.whole(layer.weight), bias = sharded.whole(layer.bias);
    const Sharded::Unit unit = sharded.unit(layer.parameters());
    const Tensor x = data(comm, 6, DType::f64);
    const auto product = [&](const Var& x) { return matmul(x, bind(x, layer.weight)); };
    const auto shifted = [&](const Var& x) { return add_along(x, bind(x, layer.bias), -1); };
    Tape asking, tape;
    sharded.gradient(loss_of(sharded.run(unit, asking.constant(x), shifted)), layer.bias);
    tape.backward(loss_of(sharded.run(unit, tape.constant(x), product)), sharded.gradients());
    sharded.step(0.1);
    expect_same_bits(sharded.whole(layer.bias), bias);
    expect(sharded.whole(layer.weight).values() != weight.values(), "the weights have not moved");
  });
}

}  // namespace
}  // namespace weft
