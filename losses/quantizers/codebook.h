#pragma once
// The table of codes of a VectorQuantize, and how it follows the tokens: by moving averages, whose state and codes have
// the same bits on every rank, however the tokens of a step are divided among ranks and passes. All ranks make the same
// calls, also those without tokens.
#include <optional>

#include "engine/nn/init.h"
#include "engine/nn/module.h"
#include "losses/quantizers/code_sums.h"

namespace weft {

struct CodebookOptions {
  int64_t dim, codes;
  bool learnable = false;  // by gradients; otherwise codes are moving averages of their tokens
  bool unit = false;       // codes of length 1
  double decay = 0.8;
  double epsilon = 1e-5;           // added to every size before dividing by it (Laplace smoothing)
  double dead_below = 0;           // codes whose moving average of tokens is less than this are replaced
  int64_t k_means_iterations = 0;  // to begin with, from the first tokens; 0 for random codes
};

class Codebook final : public Module {
 public:
  Codebook(const std::string& name, const CodebookOptions& options, const Init& init);

  Parameter codes;        // (codes, dim): a parameter if it is learnable, else a buffer
  Parameter sizes, sums;  // buffers: moving averages of each code's tokens, their number (codes) and sum (codes, dim)
  Parameter started;      // buffer, on the host: whether k-means has been made, or was not asked for

  bool has_started() const { return started.value.item() != 0; }
  // By k-means over the tokens of all ranks, if any rank has one.
  void start(const Tensor& tokens, Communicator& comm, const Random& key, Site caller = Site::here());

  // What an update will be made of, from any number of passes.
  void observe(const Tensor& tokens, const Tensor& indices);
  // One all_reduce; with a dead code, one small meeting and an all_gather of the tokens that replace such codes. These
  // are chosen from all since the last update, counted rank by rank. Nothing changes where there were none.
  void update(Communicator& comm, const Random& key, Site caller = Site::here());

  // For reports: by the moving averages, how many codes are used as if equally often; how many are below this size; how
  // many the last update replaced. (A learnable codebook has averages only if dead codes are replaced.)
  double perplexity() const;
  int64_t smaller_than(double size) const;
  int64_t replaced() const { return replaced_; }

 private:
  void average(const CodeSums::Total& step);
  void replace_dead(int64_t tokens, Communicator& comm, const Random& key, Site caller);
  void write_codes(const Tensor& values);

  CodebookOptions options_;
  std::optional<CodeSums> step_;
  std::vector<Tensor> tokens_;  // since the last update, if dead codes are replaced by some of them
  int64_t replaced_ = 0;
};

}  // namespace weft
