// SPDX-License-Identifier: Apache-2.0
// Weights of a small linear layer after ten steps with Lightly's losses on one process. Lightly's own tests have those
// of NT-Xent, and those of DCL from before its formula was corrected; these digits are of Lightly 1.6.0 in f64.
#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/matmul.h"
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/dcl.h"
#include "weft/losses/contrastive/nt_xent.h"

using namespace weft;

namespace {

using Loss = std::function<Var(const Var&, const Var&, Communicator&)>;

// This rank's part of 0, 1, 2, ... in the shape (8, 2, width).
Tensor counted(int64_t width, const Division& division, DType dtype) {
  const Tensor all = Tensor::arange(16 * width).to(dtype).reshape({8, 2, width});
  return all.slice(division.first, division.first + division.mine());
}

Tensor trained(const Loss& loss, Communicator& comm, DType dtype) {
  const Division division(8 * (number(comm) + 1) / comm.size() - 8 * number(comm) / comm.size(), comm);
  const Tensor rows = Tensor::from({2, 5}, {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}, dtype);
  Parameter weight("weight", transpose(rows).value());
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    Gradients gradients;
    const Var x = linear(tape.constant(counted(5, division, dtype)), tape.watch(weight));
    tape.backward(loss(flatten(x), tape.constant(flatten(counted(2, division, dtype)).value()), comm), gradients);
    weight.value = (weight.value - Var(comm.all_reduce(gradients[weight])) * 0.1).value();
  }
  return transpose(weight.value).value();
}

// On the numbers of ranks in Lightly's tests, and on others.
void expect_weights(const Loss& loss, const std::vector<double>& expected) {
  on_ranks({1, 2, 3, 4, 5}, [&](Communicator& comm) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 2e-6), std::pair(DType::f64, 6e-9)}) {
      const std::vector<double> weights = trained(loss, comm, dtype).values();
      for (size_t i = 0; i < expected.size(); ++i)
        require(std::abs(weights[i] - expected[i]) < tolerance, "weight ", i, " is ", weights[i], ", not ",
                expected[i]);
    }
  });
}

}  // namespace

TEST_CASE("NT-Xent trains to the weights of Lightly on one process") {
  expect_weights([](const Var& a, const Var& b, Communicator& comm) { return nt_xent(a, b, {}, comm); },
                 {0.16745749, 0.26760486, 0.36775223, 0.46789961, 0.56804698,  //
                  0.57625093, 0.67415373, 0.77205652, 0.86995932, 0.96786211});
}

TEST_CASE("DCL trains to the weights of Lightly since its formula was corrected") {
  expect_weights([](const Var& a, const Var& b, Communicator& comm) { return dcl(a, b, {}, comm); },
                 {0.32882572, 0.42439422, 0.51996273, 0.61553123, 0.71109973,  //
                  0.50115048, 0.59413289, 0.68711530, 0.78009771, 0.87308012});
}

TEST_CASE("DCLW trains to the weights of Lightly on one process, on any number of ranks") {
  expect_weights(
      [](const Var& a, const Var& b, Communicator& comm) { return dcl(a, b, {.weights = DclWeights::of_batch}, comm); },
      {0.32927664, 0.42473998, 0.52020333, 0.61566668, 0.71113003,  //
       0.50086698, 0.59393236, 0.68699775, 0.78006314, 0.87312853});
}
