#pragma once
// Vector quantization: each token becomes the nearest code of a codebook. With c(x) that code, sg what gets no
// gradient, and means over the unmasked tokens of all ranks and their features, the whole loss is
//
//     commitment_weight mean (x - sg(c(x)))^2
//   + codebook_weight mean (sg(x) - c(x))^2                          where the codebook is learnable
//   + orthogonal_weight orthogonality + diversity_weight unevenness  (codebook_losses.h)
//
// A codebook that is not learnable has no gradient: its codes follow the moving averages of their tokens (codebook.h),
// in `update`, after all passes of a step. A pass's loss is a mean over its own tokens: a step of several passes gives
// each the weight of its part of the tokens.
//
// Across ranks go the number of tokens, for k-means and updates what codebook.h says, the number of tokens of each code
// for `orthogonal_active_only`, and for unevenness one number per code. Nothing is decided when the object is made:
// ranks meet in the communicator of the call. Every rank takes part, also one whose tokens are all masked.
//
// Heads that share a codebook are more tokens: x as (samples, ..., heads, dim). With codebooks of their own they are
// groups (grouped_residual.h).
#include "losses/quantizers/codebook.h"
#include "losses/quantizers/quantizer.h"
#include "losses/quantizers/rotation.h"
#include "losses/quantizers/tokens.h"

namespace weft {

struct VectorQuantizeOptions {
  CodebookOptions codebook;  // with `unit`, tokens are brought to length 1, too: a cosine codebook
  double commitment_weight = 1, codebook_weight = 1;
  Through through = Through::straight;
  double orthogonal_weight = 0;
  bool orthogonal_active_only = false;  // only codes that a token of this pass has become, on any rank
  int64_t orthogonal_codes = 0;         // of these at most so many, chosen by pass.key; 0 for all
  double diversity_weight = 0, diversity_sharpness = 1;
};

class VectorQuantize final : public Quantizer {
 public:
  VectorQuantize(const std::string& name, const VectorQuantizeOptions& options, const Init& init);

  // The first call in training makes k-means, if it is asked for; this does so earlier.
  void start(const Var& x, Communicator& comm, const Random& key, const Var& mask = {}, Site caller = Site::here());

  Codebook codebook;

 private:
  Quantized apply(const Var& x, const Pass& pass, Communicator& comm, const Var& mask, Site caller) override;
  Var decoded(const Var& indices) override;
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
  Var codes_to_part(const Found& found, const Pass& pass, Communicator& comm, Site site) const;

  VectorQuantizeOptions options_;
};

}  // namespace weft
