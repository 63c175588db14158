// SPDX-License-Identifier: Apache-2.0
#pragma once
// Means and covariances of the rows of all ranks. Ranks may have different numbers of rows, or none.
//
// Every rank gets the same sums over ranks. Anything computed only from these sums is identical on all ranks, and so
// are its gradients (Invariant). Backward therefore communicates only one number, the gradient of the loss, in
// `counted_once`.
#include <initializer_list>
#include <span>
#include <utility>

#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// The sums over ranks of several tensors, by one all_reduce.
Vars global_sums(std::span<const Var> mine, Communicator& comm, Site site = Site::here());
// The number of rows of x as a scalar, to be summed over ranks together with sums over the rows. Exact in f32 up to
// 2^24.
Var row_count(const Var& x);
// Turns a loss that every rank has computed whole into shares: rank 0 has all of it, the others zero.
Var counted_once(const Var& whole, Communicator& comm, Site site = Site::here());

Var identity(const Var& like);  // the unit matrix of the size and type of a square matrix
// Error unless these are matrices of the same shape and type, each with one row per sample.
void expect_views(const Var& first, const Var& second);

struct Moments {
  int64_t count;     // rows on all ranks
  Vars means;        // of each matrix: (d)
  Vars variances;    // of each matrix: (d), divided by the count
  Vars covariances;  // of each pair of matrices, divided by the count
};
// Covariances of a pair: of every column of one matrix with every column of the other, (d, d), or of each column with
// its counterpart only, (d).
enum class Columns : uint8_t { all, counterparts };
// Forward takes two all_reduces: of 1 + d numbers per matrix in f64, then of 2 d per matrix and d^2 or d per pair.
// Their size does not depend on the batch. Without any rows, all results are zero.
Moments moments(const Vars& matrices, std::initializer_list<std::pair<size_t, size_t>> pairs, Communicator& comm,
                Columns columns = Columns::all, Site site = Site::here());

}  // namespace weft
