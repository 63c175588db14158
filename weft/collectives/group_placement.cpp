#include "weft/collectives/group_placement.h"

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

int group_index(Tape& tape, const Communicator& comm) {
  const int known = tape.group(&comm);
  if (known >= 0) return known;
  Tape::Members members;
  for (int r = 0; r < comm.size(); ++r) members.push_back(comm.global({r}).value);
  return tape.group(&comm, std::move(members));
}

}  // namespace

void declare_group(Tape& tape, const Communicator& comm) { group_index(tape, comm); }

bool has_placements(const Var& x) { return x.tape() && x.tape()->follows_placements(); }

Placement placement_of(const Var& x, const Communicator& comm) {
  return x.tape() ? x.placements().in(group_index(*x.tape(), comm)) : x.placements().elsewhere();
}

Var with_placement(const Var& x, const Communicator& comm, Placement placement) {
  return has_placements(x) ? with_placements(x, x.placements().with(group_index(*x.tape(), comm), placement)) : x;
}

void expect_placement(const std::string& op, const Var& x, const Communicator& comm,
                      std::initializer_list<Placement> allowed, const char* advice) {
  if (!has_placements(x)) return;
  const Placement placement = placement_of(x, comm);
  for (const Placement s : allowed)
    if (s == placement || (placement == Placement::constant && (s == R || s == I))) return;
  std::string names;
  for (const Placement s : allowed) names += (names.empty() ? "" : " or ") + text(s);
  fail({op, ": its input is ", text(placement), " over ", comm.description(), ", but ", names, " is needed; ",
        placement == unknown ? how_to_place : advice});
}

void announce(const std::string& op, const Var& x, const Communicator& comm, Site site) {
  if (!x.tape() || x.tape()->observers().empty()) return;
  const std::string place = op + " at " + site.file + ":" + std::to_string(site.line);
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
