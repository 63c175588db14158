// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/support/on_each_device.h"
#include "weft/models/text_tower.h"

namespace weft {
namespace {

struct Towers : OnEachDevice {
  const Init init = {.key = {3}, .dtype = DType::f64, .device = device};
  TextTower tower{"text", {.vocabulary = 7, .length = 5, .width = 6, .out = 4}, init};
  const Tensor sentences = Tensor::from({3, 5}, {1, 2, 3, 0, 0, 4, 5, 6, 1, 2, 3, 2, 1, 0, 0}, DType::i64).to(device);

  std::vector<double> features(const Tensor& tokens) { return tower(tokens).value().values(); }
};

// To the bit on a CPU. On a card to rounding, because cuBLAS chooses its kernel by the number of rows.
TEST_CASE_METHOD(Towers, "a sentence's features do not depend on the other sentences") {
  const Var all = tower(sentences);
  CHECK(all.shape() == Shape{3, 4});
  for (int64_t i = 0; i < 3; ++i)
    CHECK(distance(tower(sentences.slice(i, i + 1)), slice(all, 0, i, i + 1)) <= (device == Device::cpu ? 0 : 1e-14));
  CHECK(tower(sentences.slice(0, 0)).shape() == Shape{0, 4});
}

TEST_CASE_METHOD(Towers, "a sentence's features depend on word order, not on padding") {
  const auto all = features(sentences);
  CHECK(std::vector<double>(all.begin(), all.begin() + 4) != std::vector<double>(all.begin() + 8, all.end()));
  // Padding is embedded like a word, but no position attends to it.
  for (Parameter* parameter : tower.parameters()) {
    if (parameter->name != "text.words.weight") continue;
    Tensor padding = parameter->value.slice(0, 1);
    padding.copy_from(Tensor::full({1, 6}, 100, DType::f64, device));
  }
  CHECK(features(sentences) == all);
}

TEST_CASE_METHOD(Towers, "a sentence without words has finite features and gradients") {
  Tape tape;
  Gradients gradients;
  const Var y = tower(tape.constant(Tensor::zeros({2, 5}, DType::i64, device)));
  tape.backward(sum(y), gradients);
  for (const Parameter* parameter : tower.parameters())
    for (const double g : gradients[*parameter].values()) CHECK(std::isfinite(g));
}

TEST_CASE_METHOD(Towers, "every parameter of the text tower gets its gradient") {
  for (Parameter* parameter : tower.parameters()) {
    INFO(parameter->name);
    const auto loss = [&] { return sum(square(tower(sentences))).value().item(); };
    Tape tape;
    Gradients gradients;
    tape.backward(sum(square(tower(tape.constant(sentences)))), gradients);
    const Tensor gradient = gradients[*parameter];
    const Tensor before = parameter->value.clone();
    const Tensor direction = Tensor::uniform(before.shape(), {9}, -1, 1, DType::f64, device);
    const auto moved = [&](double by) {
      parameter->value.copy_from((Var(before) + Var(direction) * by).value());
      return loss();
    };
    const double slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
    parameter->value.copy_from(before);
    CHECK(sum(Var(gradient) * direction).value().item() == Approx(slope).epsilon(1e-6).margin(1e-7));
  }
}

TEST_CASE_METHOD(Towers, "the text tower refuses sentences of another length") {
  CHECK_THROWS_WITH(tower(Tensor::zeros({2, 4}, DType::i64, device)), Catch::Contains("(n, 5), not (2, 4)"));
}

}  // namespace
}  // namespace weft
