// SPDX-License-Identifier: Apache-2.0
// The optimizers' kernels on the card against the CPU's.
#include "tests/kernels/cuda_checks.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

// Runs of several lengths with different numbers, the last with whole blocks.
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

TEST_CASE("optimizer updates on the card equal the CPU's to 4 units") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : {DType::f32, DType::f64})
    for (const DType of_gradient : {type, DType::bf16})
      for (const UpdateRule rule :
           {UpdateRule::descent, UpdateRule::momentum, UpdateRule::adam, UpdateRule::amsgrad,
            UpdateRule::adam_direction, UpdateRule::momentum_direction, UpdateRule::variance_direction}) {
        INFO(text(type) << " rule " << int(rule));
        const double first = rule == UpdateRule::variance_direction ? 0.25 : -3;  // its slot is a mean of squares
        const auto values = [&](double low) { return sample({9000}, type, low); };
        const auto verb = [&](Backend& device, const Tensors& in, Tensors& out) {
          Tensor slots[] = {out[1], out[2], out[3]}, none;
          device.update(rule, runs_of(in[0]), out[0], slots, none);
        };
        compare(4, {sample({9000}, of_gradient)}, {values(-3), values(first), values(0.25), values(-3)}, verb);
      }
}

TEST_CASE("the card rounds master weights to bf16 like the CPU") {
  SKIP_WITHOUT_A_CARD();
  const auto verb = [&](Backend& device, const Tensors& in, Tensors& out) {
    device.update(UpdateRule::descent, runs_of(in[0]), out[0], {}, out[1]);
  };
  compare(0, {sample({9000}, DType::f32)}, {sample({9000}, DType::f32), sample({9000}, DType::bf16)}, verb);
}

TEST_CASE("sums of squares on the card have the CPU's bits") {
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

TEST_CASE("training on the card follows training on the CPU") {
  SKIP_WITHOUT_A_CARD();
  for (const Rule& rule : std::initializer_list<Rule>{Sgd{.momentum = 0.9}, Adam{}, Adam{.amsgrad = true}, AdamW{},
                                                      Lars{}, Lamb{}, Muon{}, Adafactor{}}) {
    INFO(name(rule));
    const double ulps = std::holds_alternative<Muon>(rule) ? 1e5 : 16;  // its iterations amplify small values
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
    CHECK(close(there.value, here.value, ulps));
  }
}

TEST_CASE("norms of bf16 gradients and of update directions can be computed in one step on the card") {
  SKIP_WITHOUT_A_CARD();
  Parameter a("a", sample({70, 30}, DType::bf16)), b("b", sample({900}, DType::bf16)), c("c", a.value.to(Device::cuda)),
      d("d", b.value.to(Device::cuda));
  Optimizer on_host({{{&a}, Lars{}}, {{&b}, Lamb{}}}), on_card({{{&c}, Lars{}}, {{&d}, Lamb{}}});
  for (int step = 0; step < 3; ++step) {
    const Tensor of_a = sample({70, 30}, DType::bf16), of_b = sample({900}, DType::bf16);
    Gradients here, there;
    here.add(a, of_a);
    here.add(b, of_b);
    there.add(c, of_a.to(Device::cuda));
    there.add(d, of_b.to(Device::cuda));
    on_host.step(here, 0.01);
    on_card.step(there, 0.01);
  }
  CHECK(close(on_card.values(), on_host.values(), 16));
}

}  // namespace
}  // namespace weft
