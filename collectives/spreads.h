#pragma once
// Spreads over a communicator's group (engine/spread.h says what they are), and the conversions between them. Each pair
// below is forward / backward; every conversion is exact, none hides a factor.
//
//   vary               Invariant  -> Replicated   the same values / all_reduce
//   all_reduce_equal   Partial, Varying -> Invariant   the sum / the same values
//   all_gather_equal   Varying    -> Invariant    everybody's rows / my rows
//   own_rows           Replicated, Invariant -> Varying   my rows / zeros around them, or everybody's rows
//   padded_rows        Varying    -> Partial      zeros around my rows / my rows
//   keep_on            Replicated -> Partial      the values on one rank, zeros elsewhere / the same
//   keep_on            Invariant  -> Partial      the values on one rank, zeros elsewhere / the same values
//   as_invariant       Replicated -> Invariant    the same values / the same on one rank, zeros elsewhere
//   as_partial         Varying    -> Partial      the same values, now a part of a sum / the same
//   as_varying         Replicated, unsaid -> Varying   the same values, now my own / the same
//   as_replicated      unsaid     -> Replicated   the same values, which the caller knows to be equal / the same
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

// Makes the group known to the tape before any collective over it, or without one: for programs that communicate only
// after backward. From here on nothing may stay unsaid where it decides a seed, and a loss that every rank holds, such
// as a penalty on parameters alone, counts once over the group.
void spread_over(Tape& tape, const Communicator& comm);

Spread spread_of(const Var& x, const Communicator& comm);
// The same value under another spread. Trusted: nothing is moved or checked.
Var spread_as(const Var& x, const Communicator& comm, Spread spread);
// Error unless x's spread over the group is one of these; Same will do for equal values of either kind.
void expect_spread(const std::string& op, const Var& x, const Communicator& comm, std::initializer_list<Spread> allowed,
                   const char* advice);

// Says to whoever observes x's tape that all ranks of the group are about to meet in this op.
void announce(const std::string& op, const Var& x, const Communicator& comm, Site site);

Var vary(const Var& x, Communicator& comm, Site site = Site::here());
Var all_reduce_equal(const Var& x, Communicator& comm, Site site = Site::here());
Var all_gather_equal(const Var& x, const Communicator::Rows& rows, Communicator& comm, Site site = Site::here());
Var own_rows(const Var& x, const Communicator::Rows& rows, Communicator& comm, Site site = Site::here());
Var padded_rows(const Var& x, const Communicator::Rows& rows, Communicator& comm);
Var keep_on(const Var& x, GroupRank rank, Communicator& comm);
Var as_invariant(const Var& x, Communicator& comm);
Var as_partial(const Var& x, Communicator& comm);
Var as_varying(const Var& x, Communicator& comm);
Var as_replicated(const Var& x, Communicator& comm);

}  // namespace weft
