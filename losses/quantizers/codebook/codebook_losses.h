// SPDX-License-Identifier: Apache-2.0
#pragma once
// Losses that keep the codes of a codebook apart and in use, computed from statistics over the tokens of all ranks.
// Each is the whole loss, the same on every rank (Replicated), not a share.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// The mean squared cosine over all pairs of codes, including each code with itself, minus 1 / codes: zero if the codes
// are orthogonal. `codes` is (codes, dim).
Var orthogonality(const Var& codes);

// log codes - H(mean p_i), in nats: how far the mean assignment is from using all codes equally often. p_i, the
// assignment of token i, is the softmax over k of -sharpness |x_i - c_k|^2, and the mean is over the `total` tokens of
// all ranks. One all_reduce of one number per code crosses ranks. The assignments of 4096 tokens are in memory at a
// time.
Var unevenness(const Var& tokens, const Var& codes, double sharpness, int64_t total, Communicator& comm,
               Site site = Site::here());

}  // namespace weft
