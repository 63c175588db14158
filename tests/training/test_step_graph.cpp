// SPDX-License-Identifier: Apache-2.0
// A card that repeats the steps of a training makes the same weights as one that is given each.
#include "tests/kernels/cuda_checks.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/models/encoders.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

// The weights after some steps with ever smaller rates, then their averages.
std::vector<double> trained(const Rule& rule, const Training::Options& options, bool in_graph) {
  Communicator comm(connect_self());
  const auto network = projection_head("head", 6, 5, 4, {.key = {3}, .device = Device::cuda});
  ParameterGroup matrices{{}, rule}, others{{}, AdamW{}};
  for (Parameter* parameter : network->parameters())
    (parameter->value.shape().rank() == 2 ? matrices : others).parameters.push_back(parameter);
  Training training({matrices, others}, comm, options);
  const auto graph = backend(Device::cuda).make_graph();
  Tensor x({8, 6}, DType::f32, Device::cuda);
  for (int step = 0; step < 7; ++step) {
    x.copy_from(Tensor::normal({8, 6}, Random{5}.fork(static_cast<uint64_t>(step))));
    const double rate = 0.1 / (step + 1);
    const auto make = [&] {
      Tape tape;
      training.begin(tape);
      tape.backward(mean(square((*network)(tape.constant(x)))), training.gradients());
      training.step(rate);
    };
    const bool launched = !in_graph || step < 2 || step == 4;
    launched ? make() : graph->run(make, [&] { training.renew(rate); });
  }
  std::vector<double> all;
  const auto add = [&] {
    for (const Parameter* parameter : network->parameters())
      for (const double w : parameter->value.values()) all.push_back(w);
  };
  add();
  training.averaged(add);
  return all;
}

TEST_CASE("steps that a card repeats have the same bits as those that it is given, by every rule without norms") {
  SKIP_WITHOUT_A_CARD();
  for (const Rule& rule : std::vector<Rule>{Sgd{.momentum = 0.9}, Adam{}, AdamW{.amsgrad = true}, Muon{}})
    for (const int64_t stage : {0, 2}) {
      INFO(name(rule) << ", stage " << stage);
      const Training::Options options{.stage = stage, .average = 0.9};
      CHECK(trained(rule, options, true) == trained(rule, options, false));
    }
}

TEST_CASE("a rule that needs norms on the host cannot be repeated by a card") {
  SKIP_WITHOUT_A_CARD();
  CHECK_THROWS_WITH(trained(Lars{}, {}, true), Catch::Contains("cuda: a step in a graph cannot copy"));
}

}  // namespace
}  // namespace weft
