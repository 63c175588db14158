// SPDX-License-Identifier: Apache-2.0
#pragma once
// The quantizers, by their names in --quantizer.
#include <memory>
#include <string>
#include <vector>

#include "apps/shared/launch/options.h"
#include "weft/engine/nn/init.h"
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

struct QuantizerSettings {
  int64_t codes = 512;
  int64_t dim = 16;          // of a token, for quantizers that do not fix it
  double commitment = 0.25;  // the weight of the distance between tokens and their codes
  double decay = 0.9;        // of the moving averages that update codes
};

struct NamedQuantizer {
  std::unique_ptr<Quantizer> quantizer;
  int64_t dim;        // of a token
  int64_t codes;      // in each part's codebook
  int64_t parts = 1;  // codes per token, each from its own codebook
};

std::vector<std::string> names_of_quantizers();
NamedQuantizer quantizer_named(const std::string& name, const QuantizerSettings& settings, const Init& init);

// A quantizer's parameters are whole and in f32: WrongOption if it has any, and the options divide or round them.
void check_parameters(const std::string& name, const Quantizer& quantizer, const Options& options);

}  // namespace weft
