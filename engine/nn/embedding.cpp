// SPDX-License-Identifier: Apache-2.0
#include "weft/engine/nn/embedding.h"

#include "weft/engine/ops/index.h"

namespace weft {

Embedding::Embedding(const std::string& name, int64_t count, int64_t width, const Init& init)
    : weight(name + ".weight", init.normal(name + ".weight", {count, width}, 1)) {
  register_parameter(weight);
}

Var Embedding::apply(const Var& x, const Pass&) { return embedding(bind(x, weight), x); }

}  // namespace weft
