// SPDX-License-Identifier: Apache-2.0
#pragma once
// The input of losses with two towers: a batch of pairs, such as images and their texts, divided among ranks. The
// constructor checks the features and casts bf16 to f32.
#include "weft/losses/common/division.h"
#include "weft/losses/contrastive/all_keys.h"

namespace weft {

struct Pairs {
  const Var first, second;  // this rank's features, (b, d) each
  const Division division;  // of the pairs

  Pairs(const Var& first, const Var& second, Communicator& comm, Site site = Site::here());

  Tensor numbers() const;  // the global numbers of this rank's pairs, i64 (b)
};

// Error unless `scalar` is one number of the features' type. `what` names it in the message.
void expect_scalar(const char* what, const Var& scalar, const Var& features);

}  // namespace weft
