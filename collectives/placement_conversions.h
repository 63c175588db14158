// SPDX-License-Identifier: Apache-2.0
#pragma once
// The conversions between placements over a communicator's group (engine/tape/placement.h defines them). Each line
// below has forward / backward. Every conversion is exact; none hides a factor.
//
//   vary               Invariant  -> Replicated   the same values / all_reduce
//   all_reduce_equal   Partial, Varying -> Invariant   the sum / the same values
//   all_gather_equal   Varying    -> Invariant    the rows of all ranks / my rows
//   own_rows           Replicated, Invariant -> Varying   my rows / zeros around them, or the rows of all ranks
//   padded_rows        Varying    -> Partial      zeros around my rows / my rows
//   keep_on            Replicated -> Partial      the values on one rank, zeros elsewhere / the same
//   keep_on            Invariant  -> Partial      the values on one rank, zeros elsewhere / the same values
//   as_invariant       Replicated -> Invariant    the same values / the same on one rank, zeros elsewhere
//   as_partial         Varying    -> Partial      the same values, now a part of a sum / the same
//   as_varying         Replicated, unknown -> Varying   the same values, now my own / the same
//   as_replicated      unknown     -> Replicated   the same values, which the caller knows to be equal / the same
#include "weft/collectives/group_placement.h"

namespace weft {

Var vary(const Var& x, Communicator& comm, Site site = Site::here());
Var all_reduce_equal(const Var& x, Communicator& comm, Site site = Site::here());
Var all_gather_equal(const Var& x, const Communicator::Rows& rows, Communicator& comm, Site site = Site::here());
Var own_rows(const Var& x, const Communicator::Rows& rows, Communicator& comm, Site site = Site::here());
Var padded_rows(const Var& x, const Communicator::Rows& rows, Communicator& comm);
Var keep_on(const Var& x, GroupRank rank, Communicator& comm);
Var as_invariant(const Var& x, Communicator& comm);

}  // namespace weft
