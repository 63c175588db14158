// SPDX-License-Identifier: Apache-2.0
#pragma once
// The unmasked tokens of a batch as the rows of a matrix. Quantizers compute with these rows and need not handle masks.
#include "weft/losses/quantizers/quantizer.h"

namespace weft {

class Tokens {
 public:
  // x is (samples, ..., dim), the mask u8 (samples, ...) or empty. Rows are f32 if x is bf16. The row numbers are
  // computed on the host, so a mask on a card costs a synchronization.
  Tokens(const Var& x, int64_t dim, const Var& mask);

  const Var& rows() const { return rows_; }  // (unmasked tokens, dim)
  // The number of unmasked tokens on all ranks, by one small collective.
  int64_t total(Communicator& comm, Site site = Site::here()) const;

  // Returns the results in the shape and type of x. Masked tokens are unchanged and have index -1. `indices` are
  // (unmasked tokens, ...).
  Quantized back(const Var& values, const Tensor& indices, const Var& loss) const;

 private:
  Var x_, all_, rows_;  // as given, as a matrix, and its unmasked rows
  Var places_;          // of each token, the row of its result in the results followed by all_
};

Var no_loss(const Var& x, Communicator& comm);                        // the zero share outside of training
Var per_feature(const std::vector<double>& values, const Var& like);  // a constant vector of like's type

}  // namespace weft
