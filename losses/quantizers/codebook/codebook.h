// SPDX-License-Identifier: Apache-2.0
#pragma once
// The table of codes of a VectorQuantize, which follows the tokens by moving averages. Averages and codes are
// bit-identical on every rank, however the tokens of a step are divided among ranks and passes. All ranks must make the
// same calls, even those without tokens.
#include <optional>

#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"
#include "weft/losses/quantizers/codebook/code_sums.h"

namespace weft {

struct CodebookOptions {
  int64_t dim, codes;
  bool learnable = false;  // by gradients; otherwise codes are moving averages of their tokens
  bool unit = false;       // codes have length 1
  double decay = 0.8;
  double epsilon = 1e-5;           // added to every size before dividing by it (Laplace smoothing)
  double dead_below = 0;           // a code is replaced if its moving average of the number of tokens is below this
  int64_t k_means_iterations = 0;  // on the first tokens, for the initial codes; 0 for random codes
};

class Codebook final : public Module {
 public:
  Codebook(const std::string& name, const CodebookOptions& options, const Init& init);

  Parameter codes;        // (codes, dim): a parameter if the codebook is learnable, else a buffer
  Parameter sizes, sums;  // buffers: moving averages of the number (codes) and the sum (codes, dim) of codes' tokens
  Parameter started;      // a buffer on the host: 1 once k-means has run, or if it was not requested

  bool has_started() const { return started.value.item() != 0; }
  // Sets the codes by k-means over the tokens of all ranks. Does nothing if no rank has a token.
  void start(const Tensor& tokens, Communicator& comm, const Random& key, Site caller = Site::here());

  // Adds the tokens of one pass to the next update.
  void observe(const Tensor& tokens, const Tensor& indices);
  // Adds up the tokens since the last update over ranks; `update` does so if this has not been called. A card's values
  // are on the host in time for `update` if the card has other work between the two.
  void add_up(Communicator& comm, Site caller = Site::here());
  // Updates averages and codes. Costs one all_reduce and, if a code is dead, a small collective and an all_gather of
  // the tokens that replace dead codes. These are chosen by global number from all tokens since the last update.
  // Without tokens nothing changes.
  void update(Communicator& comm, const Random& key, Site caller = Site::here());

  // For reports, from the moving averages. A learnable codebook has averages only if dead codes are replaced.
  double perplexity() const;                      // the effective number of codes in use
  int64_t smaller_than(double size) const;        // the number of codes with fewer tokens than `size`
  int64_t replaced() const { return replaced_; }  // the number of codes that the last update replaced

 private:
  struct Step {
    CodeSums::Total total;
    Tensor sizes;                            // their new averages
    std::shared_ptr<HostCopy> sizes_to_see;  // if dead codes are replaced
  };
  bool follows_tokens() const { return !options_.learnable || options_.dead_below > 0; }
  Tensor moved(const Parameter& average, const Tensor& to) const;
  void average(const Step& step);
  void replace_dead(const Step& step, Communicator& comm, const Random& key, Site caller);
  void write_codes(const Tensor& values);

  CodebookOptions options_;
  std::optional<CodeSums> own_;  // since the last update
  std::optional<Step> step_;     // of all ranks, once added up
  std::vector<Tensor> tokens_;   // since the last update, as replacements of dead codes
  int64_t replaced_ = 0;
};

}  // namespace weft
