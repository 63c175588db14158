#pragma once
// Features of short sentences. Words and their places are embedded, one block of a transformer lets them look at each
// other (Vaswani et al., arXiv 1706.03762), and their mean is the sentence's:
//
//   x = words + places,  x += attention(norm(x)),  x += mlp(norm(x)),  features = linear(norm(mean over words of x))
#include "engine/nn/embedding.h"
#include "engine/nn/linear.h"
#include "engine/nn/norms.h"

namespace weft {

// From tokens i64 (n, length), in which 0 is padding that nobody sees, to (n, out).
class TextTower final : public Layer {
 public:
  struct Sizes {
    int64_t vocabulary, length;
    int64_t width = 64, out = 64;
  };
  TextTower(const std::string& name, const Sizes& sizes, const Init& init);

 private:
  Var apply(const Var& tokens, const Pass& pass) override;
  Var attention(const Var& x, const Var& seen);

  const Sizes sizes_;
  Embedding words_;
  Parameter places_;
  LayerNorm norm_of_attention_, norm_of_mlp_, norm_of_mean_;
  Linear queries_, keys_, values_, mixed_, out_;
  Mlp mlp_;
};

}  // namespace weft
