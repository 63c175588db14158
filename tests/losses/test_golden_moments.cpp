// SPDX-License-Identifier: Apache-2.0
// Weights after ten steps with Lightly's losses on one process, which its tests print to four digits. Any number of
// ranks must reproduce them.
#include "tests/support/on_ranks.h"
#include "weft/engine/ops/matmul.h"
#include "weft/losses/statistics/tico.h"
#include "weft/losses/statistics/vicreg.h"

using namespace weft;

namespace {

// Eight samples, sharded over ranks: x (8, 2, 5) and the targets of its features (8, 4), both counting from 0.
template <class Loss> Tensor trained(double rate, Communicator& comm, Loss loss) {
  Parameter weight("weight", Tensor::from({2, 5}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}, DType::f64));
  const int64_t begin = 8 * number(comm) / comm.size(), end = 8 * (number(comm) + 1) / comm.size();
  const Tensor x = Tensor::arange(80, DType::f64).reshape({8, 10}).slice(begin, end).reshape({2 * (end - begin), 5});
  const Tensor target = Tensor::arange(32, DType::f64).reshape({8, 4}).slice(begin, end);
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    Gradients gradients;
    const Var features = matmul(tape.constant(x), tape.watch(weight), Transpose::no, Transpose::yes);
    tape.backward(loss(reshape(features, {end - begin, 4}), tape.constant(target)), gradients);
    weight.value = (Var(weight.value) - Var(comm.all_reduce(gradients[weight])) * rate).value();
  }
  return weight.value;
}

void expect_weights(const Tensor& actual, const std::vector<double>& expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    expect(std::abs(actual.values()[i] - expected[i]) <= 5e-5, text(actual) + " is not as expected");
}

}  // namespace

TEST_CASE("TiCo trains to the weights of Lightly") {
  on_ranks({1, 2, 4}, [](Communicator& comm) {
    Tico tico("tico", 4, {.key = {}, .dtype = DType::f64});
    const auto loss = [&](const Var& x, const Var& y) {
      tico.update();  // for the step before
      return tico(x, y, {.training = true}, comm);
    };
    expect_weights(trained(0.1, comm, loss),
                   {0.1985, 0.3004, 0.4022, 0.5041, 0.6060, 0.5694, 0.6627, 0.7559, 0.8492, 0.9424});
  });
}

TEST_CASE("VICReg trains to the weights of Lightly") {
  on_ranks({1, 2, 4}, [](Communicator& comm) {
    const auto loss = [&](const Var& x, const Var& y) { return vicreg(x, y, {}, comm); };
    expect_weights(trained(1e-8, comm, loss),
                   {-0.2382, -0.1381, -0.0381, 0.0619, 0.1620, -0.0494, 0.0505, 0.1504, 0.2503, 0.3503});
  });
}
