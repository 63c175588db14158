#pragma once
// What losses of two towers begin with: a batch of pairs, such as images and their texts, divided among ranks.
#include "losses/all_scores.h"
#include "losses/division.h"

namespace weft {

struct Pairs {
  const Var first, second;  // this rank's features, (b, d) each
  const Division division;  // of pairs

  Pairs(const Var& first, const Var& second, Communicator& comm, Site site = Site::here());

  Tensor numbers() const;  // of this rank's pairs in the whole batch, i64 (b)
};

// Error unless it is one number of the features' type.
void expect_scalar(const char* what, const Var& scalar, const Var& features);

}  // namespace weft
