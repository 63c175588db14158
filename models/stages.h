// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <vector>

#include "weft/engine/nn/module.h"

namespace weft {

// Stages in sequence, each from pictures (n, height, width, channels) to pictures, and a row of features of all of
// them: of every stage, the largest value of each channel in each of `parts` x `parts` parts of the picture, and its
// mean over the whole picture. So features say roughly where in the picture something is, and how fine it is. Where a
// side does not divide by `parts`, neighbouring parts overlap; a side shorter than `parts` has a part for each pixel.
class Stages final : public Layer {
 public:
  explicit Stages(int64_t parts) : parts_(parts) {}
  void add(std::unique_ptr<Layer> stage);

 private:
  Var apply(const Var& x, const Pass& pass) override;

  const int64_t parts_;
  std::vector<std::unique_ptr<Layer>> stages_;
};

// The largest value of each channel in each part, (n, parts x parts x channels).
Var maxima_of_parts(const Var& x, int64_t parts);

}  // namespace weft
