// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tools/weft/dump/dump_reader.h"

namespace weft::verify {
namespace {

void check_shapes(const StoredParameter& p) {
  const auto check = [&](const char* what, const StoredTensor& tensor) {
    require(tensor.shape() == p.truth->shape(), "verify: the ", what, " gradient of '", p.name, "' is ", tensor.shape(),
            ", on one process ", p.truth->shape());
  };
  for (const auto& each : p.reduced)
    if (each) check("reduced", *each);
  for (const auto& each : p.mended)
    if (each) check("mended", *each);
  for (const auto& [number, tensor] : p.inexact) check("inexact", tensor);
}

}  // namespace

// Gradients are whole, but a rank may be without some, such as a stage of a pipeline.
void check_step(const std::vector<StoredParameter>& parameters, Dump& dump) {
  for (const StoredParameter& p : parameters) {
    require(p.truth.has_value(), "verify: there is no 'truth/", p.name, "': on one process it has no gradient");
    require(!p.inexact.empty(), "verify: there is no 'inexact/", p.name, "/0', which tells expected rounding");
    require(std::ranges::any_of(p.reduced, [](const auto& each) { return each.has_value(); }),
            "verify: no rank has 'reduced/", p.name, "'");
    check_shapes(p);
    for (size_t r = 0; !dump.step->mended.empty() && r < dump.files.size(); ++r)
      require(!p.reduced[r] || (!p.mended.empty() && p.mended[r]), dump.step->mended_files[r].string(),
              ": there is no 'mended/", p.name, "'");
    for (size_t r = 0; r < dump.files.size(); ++r) {
      const auto passes = p.passes(r);
      dump.micro_batches = std::max(dump.micro_batches, static_cast<int>(passes));
      for (size_t k = 0; k < passes; ++k)
        require(std::ranges::find(p.local[r], k, &StoredParameter::Term::micro_batch) != p.local[r].end(),
                dump.files[r].string(), ": there is no 'local/", p.name, "/", k, "'");
    }
  }
}

}  // namespace weft::verify
