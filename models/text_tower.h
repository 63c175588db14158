// SPDX-License-Identifier: Apache-2.0
#pragma once
// Encodes short sentences as features: embeds words and their positions, applies one transformer block (Vaswani et al.,
// arXiv 1706.03762), and takes the mean over the words:
//
//   x = words + places,  x += attention(norm(x)),  x += mlp(norm(x)),  features = linear(norm(mean over words of x))
#include "weft/engine/nn/embedding.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"

namespace weft {

// From tokens i64 (n, length), in which 0 is padding and is masked, to (n, out).
class TextTower final : public Layer {
 public:
  struct Sizes {
    int64_t vocabulary, length;
    int64_t width = 64, out = 64;
  };
  TextTower(const std::string& name, const Sizes& sizes, const Init& init);

 private:
  Var apply(const Var& tokens, const Pass& pass) override;
  Var attention(const Var& x, const Var& mask);

  const Sizes sizes_;
  Embedding words_;
  Parameter places_;
  LayerNorm norm_of_attention_, norm_of_mlp_, norm_of_mean_;
  Linear queries_, keys_, values_, mixed_, out_;
  Mlp mlp_;
};

}  // namespace weft
