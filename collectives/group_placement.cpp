// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/group_placement.h"

#include <algorithm>

#include "weft/engine/tape/observer.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

using namespace placement_letters;

const Op as_partial_op{"as_partial", {}, Algebra::own}, as_varying_op{"as_varying", {}, Algebra::own},
    as_replicated_op{"as_replicated", {}, Algebra::own};

// The same values; the caller sets their placement.
Var same_values(const Op& op, const Var& x) {
  return record(op, x.value(), from(x, [](const Var& g) { return g; }));
}

// The table in the header, for one group among `others` and a collective over `called`.
enum class Relation : uint8_t { axis, inside, other };
Relation relation(const Partition& others, const Partition& called) {
  const bool trivial = called.is_of_single_ranks() || others.is_of_single_ranks();
  if (trivial || others.is_axis_beside(called)) return Relation::axis;
  return others.is_inside(called) ? Relation::inside : Relation::other;
}

// What is known of a value over a group of which only some ranks, or other ranks, took part.
Placement beyond(Placement before) { return before == R || before == C || before == V ? V : unknown; }

bool passes(Placement placement, Relation relation, Placement over_called, Passage passage) {
  if (passage == Passage::message) return false;
  if (relation == Relation::axis) return placement == I || passage != Passage::nonlinear;
  if (relation == Relation::other) return false;
  return placement == I ? over_called == I : passage == Passage::sum;
}

void expect_to_pass(const std::string& op, const Var& x, const Communicator& comm, Passage passage) {
  const Tape& tape = *x.tape();
  const int called = tape.find_group(*comm.partition());
  for (int group = 0; group < tape.groups(); ++group) {
    const Placement placement = x.placements().in(group);
    const Partition& partition = tape.partition(group);
    if (group == called || partition.is_of_single_ranks() || (placement != I && placement != P)) continue;
    if (passes(placement, relation(partition, *comm.partition()), x.placements().in(called), passage)) continue;
    const std::string ranks = text(partition.mine());
    fail({op, ": its input is ", text(placement), " over ranks ", ranks, ", and would not be after a collective over ",
          text(comm.partition()->mine()), "; first ",
          placement == I ? "vary() it" : "complete the pending sum with all_reduce or reduce_scatter", " over ranks ",
          ranks});
  }
}

}  // namespace

int declare_group(Tape& tape, const Communicator& comm) {
  int index = tape.find_group(*comm.partition());
  if (index < 0) {
    index = tape.learn(comm.partition());
    const auto others = comm.job_groups().all();
    if (tape.groups() + static_cast<int>(others.size()) <= Placements::max_groups)
      for (const Tape::Group& other : others)
        if (tape.find_group(*other) < 0) tape.learn(other);
  }
  tape.use_group(index);
  return index;
}

bool has_placements(const Var& x) {
  return x.tape() ? x.tape()->follows_placements() : x.placements().elsewhere() != unknown;
}

Placement placement_of(const Var& x, const Communicator& comm) {
  const int index = x.tape() ? x.tape()->find_group(*comm.partition()) : -1;
  return index < 0 ? x.placements().elsewhere() : x.placements().in(index);
}

Var with_placement(const Var& x, const Communicator& comm, Placement placement) {
  if (x.tape()) declare_group(*x.tape(), comm);
  return placement_of(x, comm) == placement ? x : collective_result(x, comm, placement);
}

Var collective_result(const Var& y, const Communicator& comm, Placement placement) {
  if (!has_placements(y)) return y;
  const Partition& called = *comm.partition();
  const Placements before = y.placements();
  // What the whole job holds equally, any group holds that the tape meets later.
  const bool equal = (placement == R || placement == C) && comm.job_groups().is_whole(comm.partition());
  const Placement elsewhere = called.is_of_single_ranks() ? before.elsewhere()
                              : equal                     ? placement
                                                          : beyond(before.elsewhere());
  Placements after(elsewhere);
  if (Tape* tape = y.tape()) {
    const int index = declare_group(*tape, comm);
    for (int group = 0; group < tape->groups(); ++group) {
      const Relation to_called = group == index ? Relation::inside : relation(tape->partition(group), called);
      after = after.with(group, to_called == Relation::inside ? placement
                                : to_called == Relation::axis ? before.in(group)
                                                              : beyond(before.in(group)));
    }
  }
  return with_placements(y, after);
}

void expect_placement(const std::string& op, const Var& x, const Communicator& comm,
                      std::initializer_list<Placement> allowed, const char* advice, Passage passage) {
  if (!has_placements(x)) return;
  if (x.tape()) declare_group(*x.tape(), comm);
  const Placement placement = placement_of(x, comm);
  const bool fits = std::any_of(allowed.begin(), allowed.end(),
                                [&](Placement s) { return s == placement || (placement == C && (s == R || s == I)); });
  if (fits) return x.tape() ? expect_to_pass(op, x, comm, passage) : void();
  std::string names;
  for (const Placement s : allowed) names += (names.empty() ? "" : " or ") + text(s);
  fail({op, ": its input is ", text(placement), " over ", comm.description(), ", but ", names, " is needed; ",
        placement == unknown ? how_to_place : advice});
}

void announce(const std::string& op, const Var& x, const Communicator& comm, Site site) {
  if (!x.tape() || x.tape()->observers().empty()) return;
  const std::string place = op + " at " + text(site);
  for (Tape::Observer* observer : x.tape()->observers()) observer->collective_begins(&comm, place);
}

Var as_partial(const Var& x, Communicator& comm) {
  expect_placement("as_partial", x, comm, {V},
                   "an equal value would be counted once per rank; keep_on one rank counts it once");
  return with_placement(same_values(as_partial_op, x), comm, P);
}

Var as_varying(const Var& x, Communicator& comm) {
  expect_placement("as_varying", x, comm, {R, unknown}, "vary() an Invariant value, all_reduce a Partial one");
  return with_placement(same_values(as_varying_op, x), comm, V);
}

Var as_replicated(const Var& x, Communicator& comm) {
  expect_placement("as_replicated", x, comm, {unknown}, "what is known to differ, or to be equal, stays so");
  return with_placement(same_values(as_replicated_op, x), comm, R);
}

}  // namespace weft
