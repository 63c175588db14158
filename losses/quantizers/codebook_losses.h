#pragma once
// What keeps the codes of a codebook apart and in use, from statistics of all ranks' tokens. Each is Replicated: the
// whole, the same on every rank.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// The mean over all pairs of codes, of a code and itself too, of their squared cosine, less 1 / codes: zero where they
// are orthogonal. codes is (codes, dim).
Var orthogonality(const Var& codes);

// log codes - H(mean p_i), in nats: how far the mean assignment is from using all codes alike. Token i belongs to code
// k with the softmax over k of -sharpness |x_i - c_k|^2; the mean is that over the `total` tokens of all ranks. One
// all_reduce of as many numbers as there are codes; the assignments of 4096 tokens are in memory at a time.
Var unevenness(const Var& tokens, const Var& codes, double sharpness, int64_t total, Communicator& comm,
               Site site = Site::here());

}  // namespace weft
