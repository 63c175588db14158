// SPDX-License-Identifier: Apache-2.0
// Finite scalar, SimVQ and residual quantization in plain operations. There are no finite differences, since values
// jump and their gradient is that of the values before rounding.
#include <cmath>

#include "tests/cases/losses/quantizer_cases.h"
#include "weft/engine/maths/maths.h"
#include "weft/engine/ops/ops.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/grouped_residual.h"
#include "weft/losses/quantizers/lookup_free.h"
#include "weft/losses/quantizers/residual_finite_scalar.h"
#include "weft/losses/quantizers/sim_vq.h"
#include "weft/losses/quantizers/vector_quantize.h"

namespace weft {
namespace {

using Inputs = LossCase::Inputs;
constexpr Pass training = {.training = true, .key = {7}};

Var instead_of(const Var& x, const Var& value) { return x + detach(value - x); }
Var chosen(const Var& mask, const Var& x, const Var& otherwise) {
  const Tensor all = repeat(mask, -1, x.shape()[-1]).value();
  return where(all, x, otherwise);
}
Var nothing() { return Tensor::zeros({}, DType::f64); }

// Features with 5, 4 and 2 levels, one by one.
Var finite_scalar(const Var& x) {
  Vars features;
  for (const auto& [feature, levels] : {std::pair{0, 5}, {1, 4}, {2, 2}}) {
    const double reach = (levels - 1) * 1.001 / 2, offset = levels % 2 ? 0 : 0.5;
    const double shift = (maths::log1p(offset / reach) - maths::log1p(-offset / reach)) / 2;
    const Var bounded = tanh(slice(x, -1, feature, feature + 1) + shift) * reach - offset;
    features.push_back(instead_of(bounded, round(bounded)) / (levels / 2));  // a whole number
  }
  return concat(features, -1);
}

const LossCase finite{"FSQ",
                      "mask",
                      {{{2, 3}, {2, 3}}, {}, -2, 2},
                      [](const Inputs& x, Communicator& comm) {
                        FiniteScalar quantize({5, 4, 2});
                        return with_decoder(quantize(x.rows[0], training, comm, mask_of(x)), x.rows[1], x, comm);
                      },
                      [](const Inputs& x) {
                        return with_decoder(nothing(), chosen(mask_of(x), finite_scalar(x.rows[0]), x.rows[0]),
                                            x.rows[1]);
                      },
                      0};

// Features with 5, 4 and 2 symmetric levels: searches all l numbers from -1 to 1 for the nearest.
Var symmetric_scalar(const Var& x) {
  Vars features;
  for (const auto& [feature, levels] : {std::pair{0, 5}, {1, 4}, {2, 2}}) {
    const Var bounded = tanh(slice(x, -1, feature, feature + 1));
    Tensor nearest = bounded.value().clone();
    auto* value = nearest.mutate<double>();
    for (int64_t i = 0; i < nearest.size(); ++i) {
      double best = 3;
      for (int level = 0; level < levels; ++level)
        if (const double code = 2.0 * level / (levels - 1) - 1; std::abs(code - value[i]) <= std::abs(best - value[i]))
          best = code;
      value[i] = best;
    }
    features.push_back(instead_of(bounded, Var(nearest)));
  }
  return concat(features, -1);
}

const LossCase symmetric{"FSQ",
                         "symmetric, mask",
                         {{{2, 3}, {2, 3}}, {}, -2, 2},
                         [](const Inputs& x, Communicator& comm) {
                           FiniteScalar quantize({5, 4, 2}, DType::f64, true);
                           return with_decoder(quantize(x.rows[0], training, comm, mask_of(x)), x.rows[1], x, comm);
                         },
                         [](const Inputs& x) {
                           return with_decoder(nothing(), chosen(mask_of(x), symmetric_scalar(x.rows[0]), x.rows[0]),
                                               x.rows[1]);
                         },
                         0};

// Three stages of l levels equal one stage of l^3 levels, whose cells fill the range of the tanh.
Var one_fine_stage(const Var& x) {
  Vars features;
  for (const auto& [feature, levels] : {std::pair{0, 5.0}, {1, 4.0}, {2, 2.0}}) {
    const double reach = levels / (levels - 1), cell = 2 * reach / (levels * levels * levels);
    const Var bounded = tanh(slice(x, -1, feature, feature + 1) / reach) * reach;
    features.push_back(instead_of(bounded, (round((bounded + reach) / cell - 0.5) + 0.5) * cell - reach));
  }
  return concat(features, -1);
}

const LossCase residual_finite{
    "FSQ",
    "residual, mask",
    {{{2, 3}, {2, 3}}, {}, -2, 2},
    [](const Inputs& x, Communicator& comm) {
      ResidualFiniteScalar quantize({5, 4, 2}, 3);
      return with_decoder(quantize(x.rows[0], training, comm, mask_of(x)), x.rows[1], x, comm);
    },
    [](const Inputs& x) {
      return with_decoder(nothing(), chosen(mask_of(x), one_fine_stage(x.rows[0]), x.rows[0]), x.rows[1]);
    },
    0};

// Three lookup-free quantizers, each with half the scale of the one before and a commitment loss.
std::unique_ptr<ResidualQuantizer> finer_and_finer(const QuantizerDropout& dropout = {}) {
  ResidualQuantizer::Layers layers;
  for (const double scale : {0.5, 0.25, 0.125})
    layers.push_back(std::make_unique<LookupFree>(LookupFreeOptions{
        .bits = 3, .scale = scale, .entropy_weight = 0, .commitment_weight = 0.4, .dtype = DType::f64}));
  return std::make_unique<ResidualQuantizer>(std::move(layers), dropout);
}

// The same in plain operations. Only unmasked tokens count in the loss.
Var finer_and_finer(const Var& x, int layers, const Var& weights, const Var& mask) {
  Var loss = nothing(), rest = x;
  for (int i = 0; i < layers; ++i) {
    const Tensor up = Tensor::full(x.shape(), maths::pow(0.5, i + 1.0), DType::f64),
                 zero = Tensor::zeros(x.shape(), DType::f64);
    const Var code = where(greater(rest.value(), zero), up, -Var(up));
    const Var far = square(rest - code);
    const Var counted = mask.defined() ? gather_rows(reshape(far, {far.size() / 3, 3}), unmasked(x)) : far;
    loss = loss + 0.4 * mean(counted);
    rest = rest - code;
  }
  const Var values = instead_of(x, x - rest);
  return with_decoder(loss, mask.defined() ? chosen(mask, values, x) : values, weights);
}

const LossCase residual{"Residual",
                        "LFQ in LFQ",
                        {{{2, 3}, {2, 3}}},
                        [](const Inputs& x, Communicator& comm) {
                          return with_decoder((*finer_and_finer())(x.rows[0], training, comm), x.rows[1], x, comm);
                        },
                        [](const Inputs& x) { return finer_and_finer(x.rows[0], 3, x.rows[1], {}); },
                        0};

const LossCase masked_residual{"Residual",
                               "mask, dropout",
                               {{{2, 3}, {2, 3}}},
                               [](const Inputs& x, Communicator& comm) {
                                 const auto quantize = finer_and_finer({.least = 1});
                                 return with_decoder(quantize->quantize(x.rows[0], 2, training, comm, mask_of(x)),
                                                     x.rows[1], x, comm);
                               },
                               [](const Inputs& x) { return finer_and_finer(x.rows[0], 2, x.rows[1], mask_of(x)); },
                               0};

const LossCase grouped{
    "Residual",
    "groups",
    {{{2, 6}, {2, 6}}},
    [](const Inputs& x, Communicator& comm) {
      GroupedResidual::Groups groups;
      for (int i = 0; i < 2; ++i) groups.push_back(finer_and_finer());
      return with_decoder(GroupedResidual(std::move(groups))(x.rows[0], training, comm), x.rows[1], x, comm);
    },
    [](const Inputs& x) {
      const auto half = [&](int i, int64_t begin) {
        return slice(x.rows[static_cast<size_t>(i)], -1, begin, begin + 3);
      };
      return finer_and_finer(half(0, 0), 3, half(1, 0), {}) + finer_and_finer(half(0, 3), 3, half(1, 3), {});
    },
    0};

Var nearest(const Var& x, const Var& codes) {
  const Tensor distances = pairwise_squared_distance(x.value(), codes.value()).value();
  return matmul(one_hot(argmin(distances, 1), codes.shape()[0], DType::f64), codes);
}

// Two learnable codebooks of five codes.
const LossCase learnable{
    "Residual",
    "VQ in VQ",
    {{{2, 3}, {2, 3}}, {{5, 3}, {5, 3}}},
    [](const Inputs& x, Communicator& comm) {
      Tape& tape = *x.rows[0].tape();
      ResidualQuantizer::Layers layers;
      std::vector<Parameter*> tables;
      for (int i = 0; i < 2; ++i) {
        const VectorQuantizeOptions options = {
            .codebook = {.dim = 3, .codes = 5, .learnable = true}, .commitment_weight = 0.4, .codebook_weight = 0.6};
        auto layer = std::make_unique<VectorQuantize>("vq", options, Init{.key = {}, .dtype = DType::f64});
        tables.push_back(&layer->codebook.codes);
        tape.substitute(*tables.back(), x.shared[static_cast<size_t>(i)]);
        layers.push_back(std::move(layer));
      }
      const Quantized found = ResidualQuantizer(std::move(layers))(x.rows[0], training, comm);
      for (Parameter* table : tables) tape.substitute(*table, {});
      return with_decoder(found, x.rows[1], x, comm);
    },
    [](const Inputs& x) {
      const Var tokens = reshape(x.rows[0], {x.rows[0].size() / 3, 3});
      const Var coarse = nearest(tokens, x.shared[0]), rest = tokens - detach(coarse),
                fine = nearest(rest, x.shared[1]);
      const auto far = [](const Var& a, const Var& b) {
        return 0.4 * mean(square(a - detach(b))) + 0.6 * mean(square(detach(a) - b));
      };
      const Var values = reshape(instead_of(tokens, coarse + fine), x.rows[1].shape());
      return with_decoder(far(tokens, coarse) + far(rest, fine), values, x.rows[1]);
    },
    0};

// Seven codes of three features times a map that all ranks share.
SimVq mapped(Through through, Device device = Device::cpu) {
  const Init init = {.key = {3}, .dtype = DType::f64, .device = device};
  return {"codes", {.dim = 3, .codes = 7, .commitment_weight = 0.4, .through = through}, init};
}

Var whole_linear_map(const Inputs& x, Through through) {
  const Var tokens = reshape(x.rows[0], {x.rows[0].size() / 3, 3});
  const Var codes = nearest(tokens, matmul(mapped(through).table.value, x.shared[0]));
  const auto far = [&](const Var& a, const Var& b) { return mean(square(gather_rows(a - b, unmasked(x.rows[0])))); };
  const Var loss = far(detach(tokens), codes) + 0.4 * far(tokens, detach(codes));
  Vars rows;
  for (int64_t i = 0; i < tokens.shape()[0]; ++i) {
    const auto row = [&](const Var& v) { return reshape(slice(v, 0, i, i + 1), {3}); };
    rows.push_back(through == Through::rotation ? rotated(row(tokens), row(codes))
                                                : instead_of(row(tokens), row(codes)));
  }
  const Var values = reshape(stack(rows, 0), x.rows[0].shape());
  return with_decoder(loss, chosen(mask_of(x), values, x.rows[0]), x.rows[1]);
}

LossCase linear_map(const char* variant, Through through) {
  return {"SimVQ",
          variant,
          {{{2, 3}, {2, 3}}, {{3, 3}}},
          [=](const Inputs& x, Communicator& comm) {
            SimVq quantize = mapped(through, x.rows[0].device());
            x.shared[0].tape()->substitute(quantize.map, x.shared[0]);
            return with_decoder(quantize(x.rows[0], training, comm, mask_of(x)), x.rows[1], x, comm);
          },
          [=](const Inputs& x) { return whole_linear_map(x, through); },
          0};
}
const LossCase linear_maps[] = {linear_map("mask", Through::straight), linear_map("rotation, mask", Through::rotation)};

}  // namespace
}  // namespace weft
