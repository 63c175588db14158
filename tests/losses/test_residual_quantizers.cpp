// SPDX-License-Identifier: Apache-2.0
// Finite scalar, SimVQ and residual quantization: codes, stages, and how many of them a step uses.
#include <cmath>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/grouped_residual.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/quantizers/residual_finite_scalar.h"
#include "weft/losses/quantizers/sim_vq.h"

using namespace weft;

namespace test_residual_quantizers {

constexpr Pass training = {.training = true, .key = {4}};

Tensor some(const Shape& shape, double reach = 1, DType dtype = DType::f64) {
  return Tensor::uniform(shape, {5, 2}, -reach, reach, dtype);
}

std::unique_ptr<ResidualQuantizer> finer_corners(int layers, const QuantizerDropout& dropout = {},
                                                 DType dtype = DType::f64) {
  ResidualQuantizer::Layers all;
  for (int i = 0; i < layers; ++i)
    all.push_back(
        std::make_unique<LookupFree>(LookupFreeOptions{.bits = 3, .scale = std::pow(0.5, i), .dtype = dtype}));
  return std::make_unique<ResidualQuantizer>(std::move(all), dropout);
}

// Stages for tokens with six features.
std::vector<std::unique_ptr<Quantizer>> every_kind(DType dtype, const QuantizerDropout& dropout = {}) {
  std::vector<std::unique_ptr<Quantizer>> all;
  const std::vector<int64_t> levels = {8, 5, 4, 3, 2, 7};
  all.push_back(std::make_unique<FiniteScalar>(levels, dtype));
  all.push_back(std::make_unique<ResidualFiniteScalar>(levels, 4, dropout, dtype));
  all.push_back(std::make_unique<SimVq>("s", SimVqOptions{.dim = 6, .codes = 9}, Init{.key = {1}, .dtype = dtype}));
  GroupedResidual::Groups groups;
  for (int g = 0; g < 2; ++g) groups.push_back(finer_corners(4, dropout, dtype));
  all.push_back(std::make_unique<GroupedResidual>(std::move(groups)));
  ResidualQuantizer::Layers layers;
  for (const char* name : {"a", "b"})
    layers.push_back(
        std::make_unique<SimVq>(name, SimVqOptions{.dim = 6, .codes = 9}, Init{.key = {2}, .dtype = dtype}));
  all.push_back(std::make_unique<ResidualQuantizer>(std::move(layers)));
  return all;
}

TEST_CASE("residual decode returns the values bit by bit for any shape and any number of quantizers") {
  run_ranks(1, [](Communicator& comm) {
    for (const DType dtype : {DType::f32, DType::f64})
      for (const QuantizerDropout dropout : {QuantizerDropout{}, QuantizerDropout{.least = 1}})
        for (const auto& quantize : every_kind(dtype, dropout))
          for (const Shape& shape : {Shape{40, 6}, Shape{2, 3, 4, 6}, Shape{0, 6}, Shape{2, 2, 6}, Shape{3, 6}}) {
            const Pass pass = {.training = true, .key = {static_cast<uint64_t>(shape.size())}};
            const Quantized q = (*quantize)(some(shape, 2, dtype), pass, comm);
            expect_same_bits(quantize->decode(q.indices).value(), q.values.value());
          }
  });
}

TEST_CASE("residual codes have the same bits however the batch is distributed") {
  const Tensor all = some({11, 2, 6}, 2, DType::f32);
  std::vector<Quantized> whole;
  run_ranks(1, [&](Communicator& comm) {
    for (const auto& quantize : every_kind(DType::f32, {.least = 1})) whole.push_back((*quantize)(all, training, comm));
  });
  on_ranks([&](Communicator& comm) {
    const int64_t begin = 11 * number(comm) / comm.size(), end = 11 * (number(comm) + 1) / comm.size();
    size_t kind = 0;
    for (const auto& quantize : every_kind(DType::f32, {.least = 1})) {
      const Quantized q = (*quantize)(all.slice(begin, end), training, comm);
      expect_same_bits(q.indices.value(), whole[kind].indices.value().slice(begin, end));
      expect_same_bits(q.values.value(), whole[kind++].values.value().slice(begin, end));
    }
  });
}

TEST_CASE("masked tokens pass residual quantization unchanged, even if a rank has no others") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tensor x = some({4, 6});
    x.mutate<double>()[0] = NAN;
    const Tensor mask = Tensor::from({4}, {0, number(comm) ? 0. : 1., 0, number(comm) ? 0. : 1.}, DType::u8);
    for (const auto& quantize : every_kind(DType::f64)) {
      const Quantized q = (*quantize)(x, training, comm, mask);
      expect(std::isfinite(q.loss.value().item()), "the loss");
      for (const int64_t i : {0, 2}) {
        expect_same_bits(q.values.value().slice(i, i + 1), x.slice(i, i + 1));
        for (const double index : q.indices.value().slice(i, i + 1).values()) expect(index == -1, "a masked index");
      }
      if (number(comm) == 0) expect(q.indices.value().slice(1, 2).values()[0] >= 0, "an index that counts");
    }
  });
}

TEST_CASE("finite scalar codes reach every level including zero, with the first feature least significant") {
  run_ranks(1, [](Communicator& comm) {
    FiniteScalar quantize({4, 3}, DType::f64);
    const Tensor x = Tensor::from({4, 2}, {-9, -9, 9, -9, 0, 0, 9, 9}, DType::f64);
    const Quantized q = quantize(x, training, comm);
    expect_same_bits(q.values.value(), Tensor::from({4, 2}, {-1, -1, 0.5, -1, 0, 0, 0.5, 1}, DType::f64));
    expect_same_bits(q.indices.value(), Tensor::from({4}, {0, 3, 6, 11}, DType::i64));
    expect(quantize.size() == 12 && q.loss.value().item() == 0, "codes and loss");
    const Quantized many = quantize(some({2000, 2}, 3), training, comm);
    std::vector<int> times(12);
    for (const double index : many.indices.value().values()) ++times[static_cast<size_t>(index)];
    expect(*std::min_element(times.begin(), times.end()) > 0, "a code that nobody has");
  });
}

// Zero lies between two codes if the number of symmetric levels is even.
TEST_CASE("between two symmetric levels a feature takes the larger one") {
  run_ranks(1, [](Communicator& comm) {
    FiniteScalar quantize({2, 4, 6, 3}, DType::f64, true);
    expect_close(quantize(Tensor::zeros({1, 4}, DType::f64), {}, comm).values.value(),
                 Tensor::from({1, 4}, {1, 1. / 3, 0.2, 0}, DType::f64));
  });
}

TEST_CASE("q residual stages of l levels equal one uniform quantizer with l^q levels") {
  run_ranks(1, [](Communicator& comm) {
    const std::vector<int64_t> levels = {5, 4, 3, 2};
    const Tensor ends = Tensor::from({2, 4}, {99, 99, 99, 99, -99, -99, -99, -99}, DType::f64);
    const Tensor x = concat({some({500, 4}, 3), ends}, 0).value();
    double before = 2;
    for (int stages = 1; stages <= 4; ++stages) {
      ResidualFiniteScalar quantize(levels, stages, {}, DType::f64);
      const Quantized q = quantize(x, training, comm);
      expect_same_bits(quantize.decode(q.indices).value(), q.values.value());
      double furthest = 0;
      for (int64_t j = 0; j < 4; ++j) {
        const double l = static_cast<double>(levels[static_cast<size_t>(j)]), reach = l / (l - 1);
        const Var bounded = tanh(slice(Var(x), 1, j, j + 1) / reach) * reach;
        const double off = max(abs(bounded - slice(q.values, 1, j, j + 1))).value().item();
        expect(off <= reach * std::pow(l, -stages) * (1 + 1e-9), "further than half a cell");
        furthest = std::max(furthest, off);
      }
      expect(furthest < before, "a stage that adds nothing");
      before = furthest;
    }
  });
}

// A library adds straight-through copies of every stage. Its encoder's gradient is larger by the number of stages, and
// changes from step to step where quantizers are dropped.
TEST_CASE("the straight-through gradient passes once through the sum of all stages") {
  run_ranks(1, [](Communicator& comm) {
    for (const int64_t used : {1, 2, 4}) {
      Tape tape;
      const Var x = tape.watch(some({3, 3}));
      const Quantized q = finer_corners(4)->quantize(x, used, training, comm, {});
      expect_same_bits(tape.gradient(sum(q.values), {x})[0].value(), Tensor::full({3, 3}, 1, DType::f64));
    }
  });
}

TEST_CASE("every residual stage's loss contributes to the tokens' gradient") {
  run_ranks(1, [](Communicator& comm) {
    const auto gradient = [&](int64_t used) {
      Tape tape;
      const Var x = tape.watch(some({3, 3}));
      return tape.gradient(finer_corners(3)->quantize(x, used, training, comm, {}).loss, {x})[0].value();
    };
    const Tensor one = gradient(1), two = gradient(2), three = gradient(3);
    expect(max(abs(Var(two) - Var(one))).value().item() > 1e-3, "the second stage's loss");
    expect(max(abs(Var(three) - Var(two))).value().item() > 1e-3, "the third stage's loss");
  });
}

TEST_CASE("residual decode accepts the indices of the first few quantizers") {
  run_ranks(1, [](Communicator& comm) {
    const auto quantize = finer_corners(4);
    const Tensor x = some({5, 3});
    const Quantized all = (*quantize)(x, {}, comm), coarse = quantize->quantize(x, 2, {}, comm, {});
    expect_same_bits(quantize->decode(slice(all.indices, -1, 0, 2)).value(), coarse.values.value());
  });
}

TEST_CASE("SimVQ trains only its map, which moves every code") {
  run_ranks(1, [](Communicator& comm) {
    SimVq quantize("codes", {.dim = 3, .codes = 50}, {.key = {1}, .dtype = DType::f64});
    expect(quantize.parameters() == std::vector<Parameter*>{&quantize.map}, "parameters");
    expect(quantize.buffers() == std::vector<Parameter*>{&quantize.table}, "buffers");
    const Tensor every = Tensor::arange(50), before = quantize.decode(every).value();
    Tape tape;
    Gradients gradients;
    tape.backward(quantize(tape.constant(some({1, 3})), training, comm).loss, gradients);
    quantize.map.value = (Var(quantize.map.value) - gradients[quantize.map]).value();
    const Var moved = sum(abs(quantize.decode(every) - before), 1);
    expect(min(moved).value().item() > 0, "a code that one token's gradient does not move");
  });
}

TEST_CASE("residual quantization refuses bad input and options") {
  run_ranks(1, [](Communicator& comm) {
    expect_refusal([] { ResidualQuantizer({}); }, {"no quantizers"});
    expect_refusal([] { finer_corners(2, {.least = 3}); }, {"at least 3 of 2"});
    expect_refusal([&] { finer_corners(2)->decode(Tensor::zeros({4, 3}, DType::i64)); }, {"(4, 3)", "2 quantizers"});
    expect_refusal([] { FiniteScalar({3, 1}); }, {"digit 1 has 1 levels"});
    expect_refusal([] { FiniteScalar({1 << 30, 1 << 30}); }, {"more than 2^48 codes"});
    expect_refusal([&] { FiniteScalar({3, 3})(some({2, 3}), {}, comm); }, {"FiniteScalar: (samples, ..., 2)"});
    expect_refusal([&] { FiniteScalar({3, 3})(some({2}), {}, comm); }, {"FiniteScalar: (samples, ..., 2)", "f64 (2)"});
    expect_refusal([&] { ResidualFiniteScalar({3, 3}, 2)(some({2, 3}), {}, comm); }, {"3 features", "levels for 2"});
    expect_refusal([] { SimVq("codes", {.dim = 3, .codes = 0}, {}); }, {"SimVq: 'codes' has 0 codes of 3 features"});
    expect_refusal([] { SimVq("codes", {.dim = 0, .codes = 5}, {}); }, {"SimVq: 'codes' has 5 codes of 0 features"});
    SimVq f32("codes", {.dim = 3, .codes = 5}, {});
    expect_refusal([&] { f32(some({2, 3}), {}, comm); }, {"SimVq: tokens are f64, 'codes.table' is f32"});
    GroupedResidual::Groups groups;
    for (int g = 0; g < 2; ++g) groups.push_back(finer_corners(2));
    GroupedResidual grouped(std::move(groups));
    expect_refusal([&] { grouped(some({2, 5}), {}, comm); }, {"(2, 5)", "2 equal groups"});
    expect_refusal([&] { grouped.decode(Tensor::zeros({3, 2}, DType::i64)); }, {"(3, 2) for 2 groups"});
  });
}

}  // namespace test_residual_quantizers
