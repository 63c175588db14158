#pragma once
// Quantizers by the names that --quantizer has for them.
#include <memory>
#include <string>
#include <vector>

#include "engine/nn/init.h"
#include "losses/quantizers/quantizer.h"

namespace weft {

struct QuantizerSettings {
  int64_t codes = 512;
  int64_t dim = 16;          // of a token, where the quantizer leaves a choice
  double commitment = 0.25;  // the weight of the distance between tokens and their codes
  double decay = 0.9;        // of the moving averages that codes follow
};

struct NamedQuantizer {
  std::unique_ptr<Quantizer> quantizer;
  int64_t dim;        // of a token
  int64_t codes;      // to choose from
  int64_t parts = 1;  // how many of them a token becomes, each from codes of its own
};

std::vector<std::string> names_of_quantizers();
NamedQuantizer quantizer_named(const std::string& name, const QuantizerSettings& settings, const Init& init);

}  // namespace weft
