// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

// Row x[i] of a table for every index. x is i64 of any shape, from tape.constant(indices). The table (count, width) is
// initialised standard normal.
class Embedding final : public Layer {
 public:
  Embedding(const std::string& name, int64_t count, int64_t width, const Init& init);

  Parameter weight;

 private:
  Var apply(const Var& x, const Pass& pass) override;
};

}  // namespace weft
