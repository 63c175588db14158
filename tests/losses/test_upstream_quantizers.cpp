// SPDX-License-Identifier: Apache-2.0
// Our quantizers against those of vector-quantize-pytorch, for the same tokens on the same three ranks, as in
// test_upstream.cpp.
#include <cmath>

#include "tests/emulated/statistics.h"
#include "tests/losses/upstream.h"
#include "tests/support/catch.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/quantizers/binary_spherical.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/quantizers/residual.h"
#include "weft/losses/quantizers/residual_finite_scalar.h"
#include "weft/losses/quantizers/sim_vq.h"
#include "weft/losses/quantizers/vector_quantize.h"

using namespace weft;

namespace test_upstream_quantizers {

constexpr double exact = 1e-12, single = 1e-6;
constexpr double W = 3;
constexpr Pass training = {.training = true, .key = {}};

const UpstreamCase& upstream(const char* loss, const char* mode) { return Upstream::stored()(loss, mode); }
using Inputs = std::span<const Var>;

// A stand-in for a decoder: a weighted sum of each token's values, averaged over all tokens.
Var with_decoder(const Quantized& quantized, const Var& weights, Communicator& comm) {
  return quantized.loss + share(sum(weights * quantized.values), 12, comm);
}

// This rank's part of a tensor that the library has for the whole batch.
void expect_state(const UpstreamCase& c, const char* name, const Var& actual, Communicator& comm) {
  const int64_t first = 4 * comm.rank().value;
  const Tensor expected = c.one.states[0].at(name).slice(first, first + 4);
  require(apart(actual.value().to(DType::f64), expected) <= single, "other ", name);
}

const LookupFreeOptions corners{.bits = 4,
                                .inverse_temperature = 0.5,
                                .entropy_weight = 1,
                                .diversity = 2,
                                .commitment_weight = 0,
                                .dtype = DType::f64};

Graded lookup_free(const UpstreamCase& c, const LookupFreeOptions& options) {
  return on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    LookupFree quantize(options);
    const Var mask = x.size() > 1 ? constant_like(x[1].value().to(DType::u8), x[0]) : Var();
    const Quantized result = quantize(x[0], training, comm, mask);
    if (!mask.defined()) expect_state(c, "indices", result.indices, comm);
    return result.loss;
  });
}

const VectorQuantizeOptions six_codes{.codebook = {.dim = 4, .codes = 6}};

std::unique_ptr<VectorQuantize> with_codes(const Tensor& codes, const VectorQuantizeOptions& options) {
  auto quantize = std::make_unique<VectorQuantize>("vq", options, Init{.key = {}, .dtype = DType::f64});
  quantize->codebook.codes.value = quantize->codebook.sums.value = codes;
  quantize->codebook.sizes.value = Tensor::full({6}, 1, DType::f64);
  return quantize;
}

// With the state after a step, which the library has on every rank.
Graded vector_quantize(const UpstreamCase& c, const VectorQuantizeOptions& options) {
  return on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    const auto quantize = with_codes(c.given.at("codes"), options);
    const Var loss = with_decoder((*quantize)(x[0], training, comm), x[1], comm);
    quantize->update(comm, {});
    const auto& state = c.ranks.states[static_cast<size_t>(comm.rank().value)];
    require(apart(state.at("sizes"), quantize->codebook.sizes.value) <= single, "other sizes");
    require(apart(state.at("sums"), quantize->codebook.sums.value) <= single, "other sums");
    require(apart(state.at("codes"), quantize->codebook.codes.value) <= single, "other codes");
    return loss;
  });
}

TEST_CASE("VectorQuantize of vector-quantize-pytorch equals ours in loss and codes") {
  const auto check = [](const char* mode, const VectorQuantizeOptions& options) {
    const UpstreamCase& c = upstream("VectorQuantize", mode);
    INFO(mode);
    CHECK(apart_everywhere(c, vector_quantize(c, options)) <= single);
  };
  VectorQuantizeOptions rotation = six_codes, cosine = six_codes;
  rotation.through = Through::rotation;
  cosine.codebook.unit = true;
  check("EMA", six_codes);
  check("rotation trick", rotation);
  check("cosine", cosine);
}

TEST_CASE("VectorQuantize of vector-quantize-pytorch sums over uneven shards, but averages its loss over ranks (S12)") {
  const UpstreamCase& c = upstream("VectorQuantize", "EMA, shards 5, 3, 4");
  const Graded ours = vector_quantize(c, six_codes);
  CHECK(apart_on_one_process(c, ours) <= single);
  int64_t first = 0;
  for (const int64_t rows : c.division) {
    const auto own = [&](const Tensor& all) { return all.slice(first, first + rows); };
    const double factor = 12 / (W * static_cast<double>(rows));
    CHECK(apart((Var(own(c.ranks.rows[0])) / W).value(), own(ours.rows[0]), factor) <= single);
    first += rows;
  }
}

enum class Used : uint8_t { by_all_ranks, by_each_rank };

// As in the library, with distances that are not squared; backward reads the codes in `read`.
Graded with_diversity(const UpstreamCase& c, Used used, const Tensor& read) {
  return on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    const Tensor codes = c.given.at("codes");
    const auto quantize = with_codes(codes, six_codes);
    const Var moved = matmul(x[0], replicated_constant(read), Transpose::no, Transpose::yes),
              wrong = detach(moved - matmul(x[0], replicated_constant(codes), Transpose::no, Transpose::yes));
    const Var lengths = add_along(add_along((moved - wrong) * -2, sum(square(x[0]), 1), 0),
                                  replicated_constant(sum(square(codes), 1).value()), -1);
    const Var own = sum(softmax(-sqrt(lengths)), 0);
    const Var p = used == Used::by_all_ranks ? all_reduce(own, comm) / 12 : own / 4;
    const Var uneven = sum(p * log(p));
    return with_decoder((*quantize)(x[0], training, comm), x[1], comm) +
           (used == Used::by_all_ranks ? keep_on(uneven, {0}, comm) : as_partial(uneven / W, comm));
  });
}

TEST_CASE("VectorQuantize of vector-quantize-pytorch computes diversity from each rank's own tokens") {
  const UpstreamCase& c = upstream("VectorQuantize", "codebook diversity, codes at rest");
  const Graded by_all = with_diversity(c, Used::by_all_ranks, c.given.at("codes"));
  CHECK(apart_on_one_process(c, by_all) <= single);
  CHECK(features_apart(c, by_all) == Approx(0.0308).epsilon(1e-2));
  CHECK(features_apart(c, with_diversity(c, Used::by_each_rank, c.given.at("codes"))) <= single);
}

TEST_CASE("VectorQuantize of vector-quantize-pytorch updates its codes before backward reads them") {
  const UpstreamCase& c = upstream("VectorQuantize", "codebook diversity");
  CHECK(apart_on_one_process(c, with_diversity(c, Used::by_all_ranks, c.given.at("codes"))) > 0.01);
  CHECK(apart_on_one_process(c, with_diversity(c, Used::by_all_ranks, c.one.states[0].at("codes"))) <= single);
  CHECK(features_apart(c, with_diversity(c, Used::by_each_rank, c.ranks.states[0].at("codes"))) <= single);
}

TEST_CASE("ResidualVQ of vector-quantize-pytorch has our codes, but each quantizer adds the gradient again") {
  const UpstreamCase& c = upstream("Residual", "VQ, frozen codebooks");
  const auto graded = [&](double times) {
    return on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
      ResidualQuantizer::Layers layers;
      for (const char* codes : {"codes 0", "codes 1", "codes 2"})
        layers.push_back(with_codes(c.given.at(codes), six_codes));
      ResidualQuantizer quantize(std::move(layers));
      const Quantized result = quantize(x[0], training, comm);
      expect_state(c, "values", result.values, comm);
      expect_state(c, "indices", result.indices, comm);
      return with_decoder({result.values * times, {}, result.loss}, x[1], comm);
    });
  };
  CHECK(apart(c.one.rows[0], graded(1).rows[0]) > 0.1);
  CHECK(apart(c.one.rows[0], graded(3).rows[0]) <= single);
}

TEST_CASE("LFQ of vector-quantize-pytorch on one process equals ours, with commitment too") {
  const UpstreamCase& c = upstream("LFQ", "commitment");
  LookupFreeOptions options = corners;
  options.commitment_weight = 0.25;
  CHECK(apart_on_one_process(c, lookup_free(c, options)) <= exact);
}

TEST_CASE("LFQ of vector-quantize-pytorch with a mask takes the entropy of each token instead of the mean") {
  // The entropy of the mean is then the tokens' mean entropy once more, which cancels the term it should balance.
  const UpstreamCase& c = upstream("LFQ", "masked");
  CHECK(std::abs(c.one.values[0] - lookup_free(c, corners).value) > 0.5);
  LookupFreeOptions options = corners;
  options.entropy_weight = 1 - options.diversity;
  options.diversity = 0;
  CHECK(apart_on_one_process(c, lookup_free(c, options)) <= exact);
}

TEST_CASE("LFQ of vector-quantize-pytorch would equal ours on ranks if it used its reduced mean") {
  const UpstreamCase& c = upstream("LFQ", "the reduced mean");
  CHECK(apart_everywhere(c, lookup_free(c, corners)) <= exact);
}

TEST_CASE("LFQ of vector-quantize-pytorch as shipped discards its reduced mean (S11)") {
  const UpstreamCase& c = upstream("LFQ", "as shipped");
  CHECK(features_apart(c, lookup_free(c, corners)) > 0.4);

  const Graded shipped = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    const Var own = emulated::lookup_free_entropy(x[0], corners.inverse_temperature, corners.diversity,
                                                  emulated::Averaging::discarded, comm);
    const double theirs = c.ranks.values[static_cast<size_t>(comm.rank().value)];
    require(std::abs(own.value().item() - theirs) <= exact, "another loss of this rank");
    return own / W;
  });
  CHECK(value_apart(c, shipped) <= exact);
  CHECK(features_apart(c, shipped) <= exact);
}

TEST_CASE("BSQ of vector-quantize-pytorch would equal ours on ranks if it used its reduced mean") {
  const UpstreamCase& c = upstream("BSQ", "the reduced mean");
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    BinarySpherical quantize({.bits = 4, .groups = 1, .temperature = 1, .entropy_weight = 1, .diversity = 2});
    const Quantized result = quantize(x[0], training, comm);
    expect_state(c, "values", result.values, comm);
    return result.loss;
  });
  CHECK(apart_everywhere(c, ours) <= exact);
  CHECK(features_apart(upstream("BSQ", "as shipped"), ours) > 0.4);
}

TEST_CASE("FSQ of vector-quantize-pytorch equals ours, also with symmetric levels") {
  const auto check = [](const char* mode, const std::vector<int64_t>& levels, bool symmetric) {
    const UpstreamCase& c = upstream("FSQ", mode);
    const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
      FiniteScalar quantize(levels, DType::f64, symmetric);
      const Quantized result = quantize(x[0], training, comm);
      expect_state(c, "values", result.values, comm);
      expect_state(c, "indices", result.indices, comm);
      return with_decoder(result, x[1], comm);
    });
    INFO(mode);
    CHECK(apart_everywhere(c, ours) <= single);
  };
  check("local", {5, 4, 3, 6}, false);
  check("preserve_symmetry", {5, 4, 2, 6}, true);
}

TEST_CASE(
    "residual FSQ of vector-quantize-pytorch has our codes, but each stage without a clamp adds the gradient again") {
  const UpstreamCase& c = upstream("FSQ", "residual");
  const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs, Communicator& comm) {
    ResidualFiniteScalar quantize({5, 5, 3, 5}, 3);
    const Quantized result = quantize(x[0], training, comm);
    expect_state(c, "values", result.values, comm);
    expect_state(c, "indices", result.indices, comm);
    return with_decoder(result, x[1], comm);
  });
  const auto theirs = c.one.rows[0].values(), once = ours.rows[0].values();
  std::map<long, int> times;
  for (size_t i = 0; i < once.size(); ++i) {
    const double ratio = theirs[i] / once[i];
    CHECK(ratio == Approx(std::round(ratio)).epsilon(1e-5));
    ++times[std::lround(ratio)];
  }
  CHECK(times == std::map<long, int>{{1, 3}, {2, 20}, {3, 25}});
}

TEST_CASE("SimVQ of vector-quantize-pytorch equals ours, with its map's gradient and the rotation trick") {
  const auto check = [](const char* mode, Through through) {
    const UpstreamCase& c = upstream("SimVQ", mode);
    const Graded ours = on_ranks_of(c, [&](Inputs x, Inputs shared, Communicator& comm) {
      SimVq quantize("sim_vq", {.dim = 4, .codes = 6, .through = through}, {.key = {}, .dtype = DType::f64});
      quantize.table.value = c.given.at("codes");
      shared[0].tape()->substitute(quantize.map, shared[0]);
      const Quantized result = quantize(x[0], training, comm);
      expect_state(c, "indices", result.indices, comm);
      return with_decoder(result, x[1], comm);
    });
    INFO(mode);
    CHECK(apart_everywhere(c, ours) <= exact);
  };
  check("straight-through", Through::straight);
  check("rotation trick", Through::rotation);
}

}  // namespace test_upstream_quantizers
