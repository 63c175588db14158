// The optimizers' verbs on the card against the CPU's.
#include "optim/optimizer.h"
#include "tests/cuda_checks.h"

namespace weft {
namespace {

// Runs of several lengths with numbers of their own, the last of them whole blocks.
std::vector<UpdateRun> runs_of(const Tensor& gradient) {
  const UpdateScalars plain = {
      .scale = 0.5, .decay = 0.125, .rate = 0.25, .beta1 = 0.75, .beta2 = 0.875, .epsilon = 0.5};
  UpdateScalars other = plain;
  other.nesterov = true;
  other.shrink = 0.75;
  return {{gradient.slice(0, 1), 0, plain},
          {gradient.slice(16, 1040), 16, other},
          {gradient.slice(1040, 9000), 1040, plain}};
}

TEST_CASE("the card updates like the CPU, to 4 units") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : {DType::f32, DType::f64})
    for (const DType of_gradient : {type, DType::bf16})
      for (const UpdateRule rule :
           {UpdateRule::descent, UpdateRule::momentum, UpdateRule::adam, UpdateRule::adam_direction}) {
        INFO(text(type) << " rule " << int(rule));
        const auto values = [&](double low) { return sample({9000}, type, low); };
        const auto verb = [&](Backend& device, const Tensors& in, Tensors& out) {
          Tensor slots[] = {out[1], out[2], out[3]}, none;
          device.update(rule, runs_of(in[0]), out[0], slots, none);
        };
        compare(4, {sample({9000}, of_gradient)}, {values(-3), values(-3), values(0.25), values(-3)}, verb);
      }
}

TEST_CASE("the card rounds the new values to bf16") {
  SKIP_WITHOUT_A_CARD();
  const auto verb = [&](Backend& device, const Tensors& in, Tensors& out) {
    device.update(UpdateRule::descent, runs_of(in[0]), out[0], {}, out[1]);
  };
  compare(0, {sample({9000}, DType::f32)}, {sample({9000}, DType::f32), sample({9000}, DType::bf16)}, verb);
}

TEST_CASE("the card's sums of squares have the CPU's bits") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating) {
    const Tensor x = Tensor::normal({5000}, {1}, 0, 1, type);
    const auto verb = [](Backend& device, const Tensors& in, Tensors& out) {
      const SquareSumsRun runs[] = {{in[0], 1000, 0}, {in[0].slice(0, 7), 2048, 6}};
      device.square_sums(runs, out[0]);
    };
    compare(0, {x}, {sample({8}, DType::f64)}, verb);
  }
}

TEST_CASE("training on the card follows the CPU") {
  SKIP_WITHOUT_A_CARD();
  for (const Rule& rule : {Rule(Sgd{.momentum = 0.9}), Rule(Adam{}), Rule(AdamW{}), Rule(Lars{}), Rule(Lamb{})}) {
    INFO(name(rule));
    Parameter here("here", sample({40, 70}, DType::f64)), there("there", here.value.to(Device::cuda));
    Optimizer on_host({&here}, rule), on_device({&there}, rule);
    for (int step = 0; step < 5; ++step) {
      const Tensor g = sample({40, 70}, DType::f64);
      Gradients of_here, of_there;
      of_here.add(here, g);
      of_there.add(there, g.to(Device::cuda));
      on_host.step(of_here, 0.01, clip(on_host.norm(of_here), 1));
      on_device.step(of_there, 0.01, clip(on_device.norm(of_there), 1));
    }
    CHECK(close(there.value, here.value, 16));
  }
}

}  // namespace
}  // namespace weft
