// SPDX-License-Identifier: Apache-2.0
// Graphs repeat a step with the same values, and what they cannot repeat is refused with its name.
#include <functional>

#include "tests/kernels/cuda_checks.h"

namespace weft {
namespace {

using Catch::Contains;

constexpr int64_t size = 1000;

Tensor on_card(double value) { return Tensor::full({size}, value, DType::f32, Device::cuda); }
Tensor doubled(const Tensor& x) {
  Tensor y = Tensor::like(x);
  backend(Device::cuda).unary(Unary{}, {2, 0}, x, y);
  return y;
}

TEST_CASE("a graph repeats a step on memory of its own, whatever is done between its launches") {
  SKIP_WITHOUT_A_CARD();
  const auto graph = backend(Device::cuda).make_graph();
  Tensor x = on_card(0), sum = on_card(0), result;
  const auto step = [&] {
    const Tensor quadrupled = doubled(doubled(x));
    backend(Device::cuda).accumulate(1, quadrupled, sum);
    return doubled(quadrupled);
  };
  for (int i = 1; i <= 6; ++i) {
    x.copy_from(on_card(i));
    if (i <= 4) result = {};  // it is captured in steps 3 and 4
    i <= 2 ? (void)(result = step()) : graph->run([&] { result = step(); }, [] {});
    std::vector<Tensor> others;
    for (int other = 0; other < 4; ++other) others.push_back(on_card(not_a_number));
    CHECK(result.slice(size - 1, size).item() == 8 * i);
    CHECK(sum.slice(0, 1).item() == 4 * (i * (i + 1) / 2));
  }
}

TEST_CASE("a step that a graph cannot repeat is refused, and the card goes on without it") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const Tensor x = on_card(1);
  int64_t steps = 0;
  Tensor kept;
  const auto refusal = [&](const std::function<void()>& step) -> std::string {
    const auto graph = card.make_graph();
    step();
    try {
      for (int i = 0; i < 2; ++i) graph->run(step, [] {});
    } catch (const NotRepeatable& error) {
      step();
      return error.what();
    }
    return "";
  };
  CHECK(refusal([&] { doubled(x); }) == "");
  CHECK(refusal([&] { doubled(x).slice(0, 1).item(); }) == "cuda: a step in a graph cannot copy 4 bytes to the host");
  CHECK(refusal([&] { HostCopy(doubled(x)); }) == "cuda: a step in a graph cannot copy 4000 bytes to the host");
  CHECK(refusal([&] { card.synchronize(); }) == "cuda: a step in a graph cannot wait for the card");
  CHECK_THAT(refusal([&] { Tensor({++steps << 24}, DType::u8, Device::cuda); }),
             Contains("cuda: a step in a graph cannot take ") && Contains(" bytes of new memory"));
  CHECK(refusal([&] { Tensor::full({1}, static_cast<double>(++steps)).to(Device::cuda); }) ==
        "cuda: a step in a graph cannot upload other values than the step before");
  CHECK(refusal([&] { Tensor({5 << 20}, DType::u8).to(Device::cuda); }) ==
        "cuda: a step in a graph cannot upload more than 4194304 bytes");
  CHECK(refusal([&] { kept = doubled(x); }) ==
        "cuda: a step in a graph cannot free 4000 bytes from before it, which it would read again; it must change them "
        "in place");
}

TEST_CASE("an update in a graph has the scalars of each step") {
  SKIP_WITHOUT_A_CARD();
  Tensor none;
  const auto values_after = [&](Device device, bool in_graph) {
    const auto graph = backend(device).make_graph();
    Tensor p = Tensor::full({size}, 3, DType::f32, device);
    const Tensor g = Tensor::full({size}, 0.5, DType::f32, device);
    for (int step = 1; step <= 6; ++step) {
      const auto update = [&] {
        const UpdateRun runs[] = {{g.slice(0, 40), 0, {.rate = 0.125 * step}}, {g.slice(40, size), 40, {.rate = 0.25}}};
        backend(device).update(UpdateRule::descent, runs, p, {}, none);
      };
      in_graph&& step > 1 ? graph->run(update, update) : update();
    }
    return p.values();
  };
  CHECK(values_after(Device::cuda, true) == values_after(Device::cpu, false));
}

TEST_CASE("updates that differ from those in a graph are refused") {
  SKIP_WITHOUT_A_CARD();
  Tensor p = on_card(3), none;
  const Tensor g = on_card(0.5);
  const auto update = [&](int64_t first, int64_t last) {
    const UpdateRun run = {g.slice(first, last), first};
    backend(Device::cuda).update(UpdateRule::descent, {&run, 1}, p, {}, none);
  };
  const auto refusal = [&](const std::function<void()>& renew) -> std::string {
    const auto graph = backend(Device::cuda).make_graph();
    try {
      for (int i = 0; i < 3; ++i) graph->run([&] { update(0, size); }, renew);
    } catch (const NotRepeatable& error) {
      return error.what();
    }
    return "";
  };
  update(0, size);
  CHECK(refusal([&] { update(0, size); }) == "");
  CHECK(refusal([] {}) == "cuda: a step in a graph cannot make 0 updates, and then 1");
  const std::string others = "cuda: a step in a graph cannot update other parameters from step to step";
  CHECK(refusal([&] { update(0, 500); }) == others);
  CHECK(refusal([&] { update(10, size); }) == others);
  CHECK(refusal([&] { update(0, size), update(0, size); }) == others);
}

}  // namespace
}  // namespace weft
