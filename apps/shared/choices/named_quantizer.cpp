// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/choices/named_quantizer.h"

#include <bit>
#include <functional>

#include "weft/losses/quantizers/binary_spherical.h"
#include "weft/losses/quantizers/finite_scalar.h"
#include "weft/losses/quantizers/grouped_residual.h"
#include "weft/losses/quantizers/residual_finite_scalar.h"
#include "weft/losses/quantizers/sim_vq.h"
#include "weft/losses/quantizers/vector_quantize.h"

namespace weft {
namespace {

using Settings = const QuantizerSettings&;
constexpr int64_t stages = 2, groups = 2;
constexpr double entropy_weight = 0.01;  // beside squared errors of about 0.01

// Codes are moving averages, start from k-means, and are replaced by tokens when they have lost all of theirs.
VectorQuantizeOptions following(Settings s) {
  return {.codebook = {.dim = s.dim, .codes = s.codes, .decay = s.decay, .dead_below = 1, .k_means_iterations = 10},
          .commitment_weight = s.commitment};
}

NamedQuantizer table(const VectorQuantizeOptions& options, const Init& init) {
  return {std::make_unique<VectorQuantize>("vq", options, init), options.codebook.dim, options.codebook.codes};
}

std::unique_ptr<ResidualQuantizer> residual(const std::string& name, const VectorQuantizeOptions& options,
                                            const Init& init) {
  ResidualQuantizer::Layers layers;
  for (int64_t i = 0; i < stages; ++i)
    layers.push_back(std::make_unique<VectorQuantize>(name + "." + std::to_string(i), options, init));
  return std::make_unique<ResidualQuantizer>(std::move(layers));
}

NamedQuantizer grouped_residual(VectorQuantizeOptions options, const Init& init) {
  const int64_t dim = options.codebook.dim;
  if (dim % groups != 0) throw WrongOption("--dim " + std::to_string(dim) + " cannot be divided into equal groups");
  options.codebook.dim = dim / groups;
  GroupedResidual::Groups all;
  for (int64_t i = 0; i < groups; ++i) all.push_back(residual("vq." + std::to_string(i), options, init));
  return {std::make_unique<GroupedResidual>(std::move(all)), dim, options.codebook.codes, groups * stages};
}

int64_t bits_of(Settings s) {
  if (!std::has_single_bit(static_cast<uint64_t>(s.codes)) || s.codes < 2)
    throw WrongOption("--codes " + std::to_string(s.codes) + ": this quantizer needs a power of two");
  return std::countr_zero(static_cast<uint64_t>(s.codes));
}

// The fewest features with at most 8 levels each, such as {8, 8, 8} for 512 codes.
std::vector<int64_t> levels_of(Settings s) {
  const int64_t bits = bits_of(s), features = (bits + 2) / 3;
  std::vector<int64_t> levels;
  for (int64_t i = 0; i < features; ++i) levels.push_back(int64_t{1} << ((bits + i) / features));
  return levels;
}

struct Named {
  std::string name;
  std::function<NamedQuantizer(Settings, const Init&)> make;
};
const std::vector<Named> quantizers = {
    {"vq", [](Settings s, const Init& init) { return table(following(s), init); }},
    {"vq-cosine",
     [](Settings s, const Init& init) {
       VectorQuantizeOptions options = following(s);
       options.codebook.unit = true;
       return table(options, init);
     }},
    {"vq-learnable",
     [](Settings s, const Init& init) {
       VectorQuantizeOptions options = following(s);
       options.codebook.learnable = true;
       return table(options, init);
     }},
    {"vq-rotation",
     [](Settings s, const Init& init) {
       VectorQuantizeOptions options = following(s);
       options.through = Through::rotation;
       return table(options, init);
     }},
    {"residual-vq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       return {residual("vq", following(s), init), s.dim, s.codes, stages};
     }},
    {"grouped-residual-vq", [](Settings s, const Init& init) { return grouped_residual(following(s), init); }},
    {"lfq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       const LookupFreeOptions options = {
           .bits = bits_of(s),
           .inverse_temperature = 10,
           .entropy_weight = entropy_weight,
           .commitment_weight = s.commitment / 5,  // less, because codes at -1 and 1 are far away
           .dtype = init.dtype};
       return {std::make_unique<LookupFree>(options), options.bits, s.codes};
     }},
    {"bsq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       const BinarySphericalOptions options = {
           .bits = bits_of(s), .entropy_weight = entropy_weight, .dtype = init.dtype};
       return {std::make_unique<BinarySpherical>(options), options.bits, s.codes};
     }},
    {"fsq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       const std::vector<int64_t> levels = levels_of(s);
       return {std::make_unique<FiniteScalar>(levels, init.dtype), static_cast<int64_t>(levels.size()), s.codes};
     }},
    {"residual-fsq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       const std::vector<int64_t> levels = levels_of(s);
       return {std::make_unique<ResidualFiniteScalar>(levels, stages, QuantizerDropout{}, init.dtype),
               static_cast<int64_t>(levels.size()), s.codes, stages};
     }},
    {"sim-vq",
     [](Settings s, const Init& init) -> NamedQuantizer {
       const SimVqOptions options = {.dim = s.dim, .codes = s.codes, .commitment_weight = s.commitment};
       return {std::make_unique<SimVq>("vq", options, init), s.dim, s.codes};
     }},
};

}  // namespace

std::vector<std::string> names_of_quantizers() {
  std::vector<std::string> names;
  for (const Named& named : quantizers) names.push_back(named.name);
  return names;
}

NamedQuantizer quantizer_named(const std::string& name, const QuantizerSettings& settings, const Init& init) {
  Init of_codes = init;
  if (init.dtype == DType::bf16) of_codes.dtype = DType::f32;  // the search compares tokens with codes in f32
  for (const Named& named : quantizers)
    if (named.name == name) return named.make(settings, of_codes);
  fail({"quantizer: there is none called '", name, "'"});
}

void check_parameters(const std::string& name, const Quantizer& quantizer, const Options& options) {
  if (!quantizer.parameters().empty() && (options.training.stage == 3 || options.dtype == "bf16"))
    throw WrongOption("--quantizer " + name +
                      " has parameters, whole and in f32: it needs --zero 0, 1 or 2, and not bf16");
}

}  // namespace weft
