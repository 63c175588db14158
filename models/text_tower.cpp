// SPDX-License-Identifier: Apache-2.0
#include "weft/models/text_tower.h"

#include <cmath>
#include <limits>

#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

// The mean over the unmasked words of each sentence of x (n, length, width); zero if there are none.
Var mean_of_words(const Var& x, const Var& mask) {
  const Shape& shape = x.shape();
  const Var words = mul_along(reshape(x, {shape[0] * shape[1], shape[2]}), flatten(mask, 0), 0);
  const Var counts = clamp(sum(mask, 1), 1, std::numeric_limits<double>::infinity());
  return div_along(sum(reshape(words, shape), 1), counts, 0);
}

}  // namespace

TextTower::TextTower(const std::string& name, const Sizes& sizes, const Init& init)
    : sizes_(sizes),
      words_(name + ".words", sizes.vocabulary, sizes.width, init),
      places_(name + ".places", init.normal(name + ".places", {sizes.length, sizes.width}, 0.1)),
      norm_of_attention_(name + ".norm_of_attention", sizes.width, init),
      norm_of_mlp_(name + ".norm_of_mlp", sizes.width, init),
      norm_of_mean_(name + ".norm_of_mean", sizes.width, init),
      queries_(name + ".queries", sizes.width, sizes.width, init),
      keys_(name + ".keys", sizes.width, sizes.width, init),
      values_(name + ".values", sizes.width, sizes.width, init),
      mixed_(name + ".mixed", sizes.width, sizes.width, init),
      out_(name + ".out", sizes.width, sizes.out, init),
      mlp_(name + ".mlp", {sizes.width, 2 * sizes.width, sizes.width}, init, {.op = Unary::Gelu}) {
  register_module(words_);
  register_parameter(places_);
  for (Layer* layer : std::initializer_list<Layer*>{&norm_of_attention_, &queries_, &keys_, &values_, &mixed_,
                                                    &norm_of_mlp_, &mlp_, &norm_of_mean_, &out_})
    register_module(*layer);
}

// Attention with one head. Masked words have scores so low that their weights are zero. The layers are called in
// separate statements, because the order of arguments, and with it the order in which the gradients of x are added, is
// unspecified.
Var TextTower::attention(const Var& x, const Var& mask) {
  const Var queries = queries_(x), keys = keys_(x), values = values_(x);
  const Var scores = matmul(queries, keys, Transpose::no, Transpose::yes);
  const Var bias = repeat(affine(mask, 1e4, -1e4), 1, sizes_.length);
  const Var weights = softmax(scores / std::sqrt(static_cast<double>(sizes_.width)) + bias);
  return mixed_(matmul(weights, values));
}

Var TextTower::apply(const Var& tokens, const Pass&) {
  const Shape& shape = tokens.shape();
  require(shape.rank() == 2 && shape[1] == sizes_.length, "text tower: sentences are (n, ", sizes_.length, "), not ",
          shape);
  const Var places = reshape(bind(tokens, places_), {sizes_.length * sizes_.width});
  Var x = words_(tokens);
  const Var mask = constant_like(clamp(tokens.value().to(x.dtype()), 0, 1).value(), tokens);  // 1, or 0 for padding
  x = reshape(add_along(flatten(x), places, -1), x.shape());
  x = x + attention(norm_of_attention_(x), mask);
  x = x + mlp_(norm_of_mlp_(x));
  return out_(norm_of_mean_(mean_of_words(x, mask)));
}

}  // namespace weft
