#include "engine/nn/embedding.h"

#include "engine/ops/index.h"

namespace weft {

Embedding::Embedding(const std::string& name, int64_t count, int64_t width, const Init& init)
    : weight(name + ".weight", init.normal(name + ".weight", {count, width}, 1)) {
  has(weight);
}

Var Embedding::apply(const Var& x, const Pass&) { return embedding(use(x, weight), x); }

}  // namespace weft
