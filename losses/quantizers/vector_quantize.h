// SPDX-License-Identifier: Apache-2.0
#pragma once
// Vector quantization: replaces each token by the nearest code of a codebook. With c(x) the code of token x, sg for a
// value without a gradient, and means over the unmasked tokens of all ranks and their features, the whole loss is
//
//     commitment_weight mean (x - sg(c(x)))^2
//   + codebook_weight mean (sg(x) - c(x))^2                          if the codebook is learnable
//   + orthogonal_weight orthogonality + diversity_weight unevenness  (codebook_losses.h)
//
// A codebook that is not learnable has no gradient. Its codes follow the moving averages of their tokens (codebook.h),
// in `update`, after all passes of a step. The loss of a pass is a mean over the tokens of this pass, so a step of
// several passes must weight each by its fraction of the tokens.
//
// The number of tokens crosses ranks; for `orthogonal_active_only` the number of tokens of each code, for unevenness
// one number per code; and for k-means and updates what codebook.h says. All collectives use the communicator of the
// call. Every rank takes part, even if all of its tokens are masked.
//
// Heads that share a codebook are additional tokens: x is (samples, ..., heads, dim). Heads with their own codebooks
// are groups (grouped_residual.h).
#include "weft/losses/quantizers/codebook/codebook.h"
#include "weft/losses/quantizers/codebook/rotation.h"
#include "weft/losses/quantizers/quantizer.h"
#include "weft/losses/quantizers/tokens.h"

namespace weft {

struct VectorQuantizeOptions {
  CodebookOptions codebook;  // with `unit`, tokens are normalized to length 1, too: a cosine codebook
  double commitment_weight = 1, codebook_weight = 1;
  Through through = Through::straight;
  double orthogonal_weight = 0;
  bool orthogonal_active_only = false;  // only codes that this pass uses, on any rank
  int64_t orthogonal_codes = 0;         // at most this many codes, chosen by pass.key; 0 for all
  double diversity_weight = 0, diversity_sharpness = 1;
};

class VectorQuantize final : public Quantizer {
 public:
  VectorQuantize(const std::string& name, const VectorQuantizeOptions& options, const Init& init);

  // Runs k-means now. Otherwise the first call in training does, if the options request it.
  void start(const Var& x, Communicator& comm, const Random& key, const Var& mask = {}, Site caller = Site::here());

  Codebook codebook;

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
  void count(Communicator& comm, Site caller) override { codebook.add_up(comm, caller); }
  void learn(Communicator& comm, const Random& key, Site caller) override { codebook.update(comm, key, caller); }

  struct Found {
    Var tokens, nearest;  // (tokens, dim)
    Var codes;            // all of them
    Tensor indices;
  };
  Var codes(const Var& beside) const;
  Var rows_of(const Tokens& tokens) const;
  Found find(const Var& rows) const;
  Var loss(const Found& found, int64_t total, const Pass& pass, Communicator& comm, Site site) const;
  Var codes_to_separate(const Found& found, const Pass& pass, Communicator& comm, Site site) const;

  VectorQuantizeOptions options_;
};

}  // namespace weft
