// SPDX-License-Identifier: Apache-2.0
// Which quantizers of a chain a step uses, their random streams, and what they learn without gradients.
#include <algorithm>
#include <cmath>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/quantizers/grouped_residual.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/quantizers/vector_quantize.h"

using namespace weft;

namespace {

Tensor some(const Shape& shape) { return Tensor::uniform(shape, {5, 2}, -1, 1, DType::f64); }
Var column(const Quantized& q, int64_t quantizer) { return slice(q.indices, -1, quantizer, quantizer + 1); }

std::unique_ptr<ResidualQuantizer> corners(int layers, const QuantizerDropout& dropout) {
  ResidualQuantizer::Layers all;
  for (int i = 0; i < layers; ++i) all.push_back(std::make_unique<LookupFree>(LookupFreeOptions{.bits = 3}));
  return std::make_unique<ResidualQuantizer>(std::move(all), dropout);
}

// Records its arguments.
class Recorder final : public Quantizer {
 public:
  struct BlockResult {
    std::vector<Random> passes, updates;
  };
  explicit Recorder(BlockResult& seen)
      : Quantizer("Recorder"), seen_(seen), corners_({.bits = 3, .dtype = DType::f64}) {}

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override {
    seen_.passes.push_back(pass.key);
    return part(corners_, x, pass, comm, mask, caller);
  }
  Var decoded(const Var& indices) override { return decoded_part(corners_, indices); }
  void learn(Communicator&, const Random& key, Site) override { seen_.updates.push_back(key); }

  BlockResult& seen_;
  LookupFree corners_;
};

// Two groups of three codebooks that learn from their tokens. Some tokens are masked, on one rank all; quantizers are
// dropped; dead codes are replaced, or a step has several passes.
std::vector<Tensor> after_steps(int steps, double dead_below, uint64_t passes, Communicator& comm) {
  const Init init = {.key = {3}, .dtype = DType::f32};
  GroupedResidual::Groups groups;
  for (const std::string group : {"left", "right"}) {
    ResidualQuantizer::Layers layers;
    for (const char* layer : {".0", ".1", ".2"})
      layers.push_back(std::make_unique<VectorQuantize>(
          group + layer,
          VectorQuantizeOptions{
              .codebook = {.dim = 4, .codes = 16, .decay = 0.7, .dead_below = dead_below, .k_means_iterations = 3}},
          init));
    groups.push_back(std::make_unique<ResidualQuantizer>(std::move(layers), QuantizerDropout{.least = 1}));
  }
  GroupedResidual quantize(std::move(groups));
  const int64_t all = 40, begin = all * number(comm) / comm.size(), end = all * (number(comm) + 1) / comm.size();
  for (int step = 0; step < steps; ++step) {
    const Random key = Random{17}.fork(static_cast<uint64_t>(step));
    for (uint64_t pass = 0; pass < passes; ++pass) {
      const Tensor x = Tensor::normal({all, 8}, key.fork(pass)).slice(begin, end);
      Tensor mask = Tensor::full({end - begin}, 1, DType::u8);
      for (int64_t i = begin; i < end; ++i) mask.mutate<uint8_t>()[i - begin] = i >= 10 && i % 3 != 1;
      quantize(x, {.training = true, .key = key, .first_sample = begin}, comm, mask);
    }
    quantize.update(comm, key);
  }
  std::vector<Tensor> state;
  for (const Parameter* buffer : quantize.buffers()) state.push_back(buffer->value.clone());
  return state;
}

}  // namespace

TEST_CASE("quantizer dropout depends on the step's key alone") {
  on_ranks([](Communicator& comm) {
    const auto used = [](const QuantizerDropout& dropout, uint64_t seed, bool train = true) {
      return corners(6, dropout)->used({.training = train, .key = {seed}, .first_sample = int64_t(seed)});
    };
    std::vector<double> counts(7);
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const int64_t n = used({.least = 2}, seed), even = used({.least = 2, .multiple_of = 4}, seed);
      ++counts[static_cast<size_t>(n)];
      expect(even == (n <= 4 ? 4 : 6), "multiples of 4, and at most all");
      expect(used({}, seed) == 6 && used({.least = 2}, seed, false) == 6, "all, unless dropout and training");
    }
    expect_same_bits(comm.all_reduce(Tensor::from({7}, counts, DType::f64), ReduceOp::maximum),
                     Tensor::from({7}, counts, DType::f64));
    expect(counts[0] + counts[1] == 0, "fewer than the least");
    for (int n = 2; n <= 6; ++n) expect(counts[static_cast<size_t>(n)] > 50, "some number is too rare");
  });
}

TEST_CASE("dropped quantizers have no index, in all groups alike") {
  run_ranks(1, [](Communicator& comm) {
    GroupedResidual::Groups groups;
    for (int g = 0; g < 2; ++g) groups.push_back(corners(5, {.least = 1}));
    GroupedResidual quantize(std::move(groups));
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Pass pass = {.training = true, .key = {seed}};
      const int64_t used = corners(5, {.least = 1})->used(pass);
      const Quantized q = quantize(some({2, 3, 6}), pass, comm);
      expect(q.indices.shape() == Shape{2, 3, 2, 5}, text(q.indices.shape()));
      for (int64_t i = 0; i < 5; ++i)
        for (const double index : column(q, i).value().values()) expect((index >= 0) == (i < used), "an index");
    }
  });
}

TEST_CASE("each quantizer draws from its own stream, and update covers those used since the last update") {
  run_ranks(1, [](Communicator& comm) {
    std::vector<Recorder::BlockResult> seen(6);
    GroupedResidual::Groups groups;
    for (size_t g = 0; g < 2; ++g) {
      ResidualQuantizer::Layers layers;
      for (size_t i = 0; i < 3; ++i) layers.push_back(std::make_unique<Recorder>(seen[3 * g + i]));
      groups.push_back(
          std::make_unique<ResidualQuantizer>(std::move(layers), QuantizerDropout{.least = 2, .multiple_of = 2}));
    }
    GroupedResidual quantize(std::move(groups));
    uint64_t two = 0;
    while (corners(3, {.least = 2, .multiple_of = 2})->used({.training = true, .key = {two}}) != 2) ++two;
    quantize(some({2, 6}), {.training = true, .key = {two}}, comm);
    quantize(some({2, 6}), {}, comm);  // evaluation uses all stages but trains none
    quantize.update(comm, {9});
    quantize.update(comm, {9});
    std::vector<std::pair<uint64_t, uint64_t>> streams;
    for (size_t i = 0; i < 6; ++i) {
      const bool used = i % 3 < 2;
      expect(seen[i].updates.size() == (used ? 1u : 0u), "updates");
      if (!used) continue;
      for (const Random& key : {seen[i].passes[0], seen[i].updates[0]}) streams.emplace_back(key.seed, key.stream);
    }
    std::sort(streams.begin(), streams.end());
    expect(std::unique(streams.begin(), streams.end()) == streams.end(), "two draw from the same stream");
  });
}

TEST_CASE("chained codebooks have the same bits after 30 steps on any number of ranks") {
  const auto check = [](double dead_below, uint64_t passes) {
    std::vector<Tensor> whole, start;
    run_ranks(1, [&](Communicator& comm) {
      start = after_steps(0, dead_below, passes, comm);
      whole = after_steps(30, dead_below, passes, comm);
    });
    REQUIRE(whole.size() == 24);
    for (size_t i = 0; i < whole.size(); i += 4) CHECK(max(abs(Var(whole[i]) - start[i])).value().item() > 0.1);
    on_ranks({2, 4, 5}, [&](Communicator& comm) {
      const std::vector<Tensor> state = after_steps(30, dead_below, passes, comm);
      for (size_t i = 0; i < state.size(); ++i) expect_same_bits(state[i], whole[i]);
    });
  };
  check(0.5, 1);
  check(0, 3);
}
