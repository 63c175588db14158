#pragma once
// Means and covariances of the rows of all ranks, however unevenly they are divided.
//
// They are made of sums over ranks, which every rank gets, and so does whatever is computed from those alone; and so
// are its gradients equal on every rank (Invariant). Backward therefore brings nothing to the ranks but the gradient of
// the loss itself, one number, where `counted_once` makes shares of it.
#include <initializer_list>
#include <span>
#include <utility>

#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// The sums over ranks of several tensors, in one exchange.
Vars global_sums(std::span<const Var> mine, Communicator& comm, Site site = Site::here());
// How many rows x has, a scalar, to be summed along with what is summed over them. Exact in f32 up to 2^24.
Var row_count(const Var& x);
// The shares of a loss that every rank has computed whole, from sums over ranks.
Var counted_once(const Var& whole, Communicator& comm, Site site = Site::here());

Var identity(const Var& like);  // the unit matrix, of a square matrix's size and type
// Error unless these are matrices of the same shape and type, each with a row for every sample.
void expect_views(const Var& first, const Var& second);

struct Moments {
  int64_t count;     // of the rows of all ranks
  Vars means;        // of each matrix: (d)
  Vars variances;    // of each matrix: (d), divided by the count
  Vars covariances;  // of each pair of matrices, divided by the count
};
// Of a pair: all columns of one by all of the other, (d, d), or each by its counterpart alone, (d).
enum class Columns : uint8_t { all, counterparts };
// Two exchanges forward: of 1 + d numbers per matrix in f64, then of 2 d per matrix and d^2 or d per pair. None of them
// costs more for a larger batch. Of no rows at all everything is zero.
Moments moments(const Vars& matrices, std::initializer_list<std::pair<size_t, size_t>> pairs, Communicator& comm,
                Columns columns = Columns::all, Site site = Site::here());

}  // namespace weft
