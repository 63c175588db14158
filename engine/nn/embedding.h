#pragma once
#include "engine/nn/init.h"
#include "engine/nn/module.h"

namespace weft {

// Row x[i] of a table for every index: x is i64 of any shape, put on the tape with tape.constant(indices). The table
// (count, width) starts standard normal.
class Embedding final : public Layer {
 public:
  Embedding(const std::string& name, int64_t count, int64_t width, const Init& init);

  Parameter weight;

 private:
  Var apply(const Var& x, const Pass& pass) override;
};

}  // namespace weft
