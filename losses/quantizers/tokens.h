#pragma once
// The tokens of a batch that count, as the rows of a matrix: the vectors along the last axis, or those of them that a
// mask lets through. What quantizers compute of the rows then knows of no mask.
#include "losses/quantizers/quantizer.h"

namespace weft {

class Tokens {
 public:
  // x is (samples, ..., dim), the mask u8 (samples, ...) or empty. Rows are f32 where x is bf16. The numbers of the
  // rows that count are made on the host: a mask on a card costs a wait.
  Tokens(const Var& x, int64_t dim, const Var& mask);

  const Var& rows() const { return rows_; }                           // (tokens that count, dim)
  int64_t total(Communicator& comm, Site site = Site::here()) const;  // how many count on all ranks: one small meeting

  // In the shape and type of x again. Tokens that do not count are as they were, and their index is -1. `indices` are
  // (tokens that count, ...).
  Quantized back(const Var& values, const Tensor& indices, const Var& loss) const;

 private:
  Var x_, all_, rows_;  // as given, as a matrix, and what counts of it
  Var places_;          // where each token's result is among those of the rows and, after them, of all tokens
};

Var no_loss(const Var& x, Communicator& comm);                        // outside of training
Var per_feature(const std::vector<double>& values, const Var& like);  // a constant vector of like's type

}  // namespace weft
