// SPDX-License-Identifier: Apache-2.0
#pragma once
// A case of Weft's registry (a collective, a loss, a quantizer, a layer) on ranks that are threads, written as a dump
// that `weft verify` reads. This runs Weft's engine; the truth of the verifier does not.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/engine/tensor/dtype.h"

namespace weft {

std::vector<std::string> case_names();

struct CaseRun {
  std::string name;  // "CLIP, local rows, ring", in any case and without punctuation; "clip" is the first of CLIP's
  int ranks = 3;
  uint64_t seed = 1;         // of the inputs
  DType dtype = DType::f64;  // of inputs, values and gradients, or f32; differences are those of the function in f64
  std::filesystem::path folder;
};
// The full name of what ran. The same CaseRun writes the same bytes.
std::string run_case(const CaseRun& run);

}  // namespace weft
