#include "collectives/spreads.h"

#include "collectives/case.h"
#include "collectives/case_rows.h"
#include "collectives/ops.h"
#include "engine/observer.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/shape_ops.h"
#include "engine/record.h"

namespace weft {
namespace {

using namespace spread_letters;

struct Conversion : Op {  // moves data in one direction at least, so it replays like any collective
  explicit Conversion(std::string name) : Op(std::move(name), {}, Algebra::own, Replay::always) {}
};
const Conversion vary_op{"vary"}, all_reduce_equal_op{"all_reduce_equal"}, all_gather_equal_op{"all_gather_equal"},
    own_rows_op{"own_rows"};
const Op keep_on_op{"keep_on", {}, Algebra::own}, as_invariant_op{"as_invariant", {}, Algebra::own},
    as_partial_op{"as_partial", {}, Algebra::own}, as_varying_op{"as_varying", {}, Algebra::own},
    as_replicated_op{"as_replicated", {}, Algebra::own};

// The same values under another spread, which is for the caller to say.
Var same_values(const Op& op, const Var& x) {
  return record(op, x.value(), from(x, [](const Var& g) { return g; }));
}

bool follows(const Var& x) { return x.tape() && x.tape()->follows_spreads(); }

int group_on(Tape& tape, const Communicator& comm) {
  const int known = tape.group(&comm);
  if (known >= 0) return known;
  Tape::Members members;
  for (int r = 0; r < comm.size(); ++r) members.push_back(comm.global({r}).value);
  return tape.group(&comm, std::move(members));
}

Rows equal_rows(const Communicator& comm, int64_t each) { return Rows(static_cast<size_t>(comm.size()), each); }

// Invariant values have equal cotangents, which the plain inner product over ranks would count once per rank; so the
// cases lead back to values that each rank owns.
using namespace case_rows;
const DistributedCase spread_cases[] = {
    {"all_reduce_equal and vary", matrix, [](auto x, auto& comm) { return vary(all_reduce_equal(x[0], comm), comm); }},
    {"vary before use by each rank alone", matrix,
     [](auto x, auto& comm) { return vary(square(all_reduce_equal(x[0], comm)), comm) * x[0]; }},
    {"all_gather_equal and own_rows", matrix,
     [](auto x, auto& comm) {
       const Rows rows = equal_rows(comm, 2);
       return own_rows(square(all_gather_equal(x[0], rows, comm)), rows, comm);
     }},
    {"own_rows of a Replicated value, padded_rows", blocks,
     [](auto x, auto& comm) {
       const Rows rows = equal_rows(comm, 2);
       return all_reduce(padded_rows(square(own_rows(all_reduce(x[0], comm), rows, comm)), rows, comm), comm);
     }},
    {"as_partial, as_varying, as_replicated", matrix,
     [](auto x, auto& comm) {
       const Tensor two = Tensor::full({2, 3}, 2, DType::f64, x[0].device());
       return as_varying(as_replicated(all_reduce(as_partial(x[0], comm), comm) * two, comm), comm) * x[0];
     }},
    {"keep_on and as_invariant", matrix,
     [](auto x, auto& comm) {
       const Var all = as_invariant(all_reduce(x[0], comm), comm);
       return all_reduce(keep_on(square(all), {comm.size() - 1}, comm), comm);
     }},
    {"keep_on", matrix,
     [](auto x, auto& comm) { return all_reduce(keep_on(all_reduce(x[0], comm), {comm.size() - 1}, comm), comm); }},
};

}  // namespace

void spread_over(Tape& tape, const Communicator& comm) { group_on(tape, comm); }

Spread spread_of(const Var& x, const Communicator& comm) {
  return x.tape() ? x.spreads().in(group_on(*x.tape(), comm)) : x.spreads().elsewhere();
}

Var spread_as(const Var& x, const Communicator& comm, Spread spread) {
  return follows(x) ? with_spreads(x, x.spreads().with(group_on(*x.tape(), comm), spread)) : x;
}

void expect_spread(const std::string& op, const Var& x, const Communicator& comm, std::initializer_list<Spread> allowed,
                   const char* advice) {
  if (!follows(x)) return;
  const Spread spread = spread_of(x, comm);
  for (const Spread s : allowed)
    if (s == spread || (spread == Spread::same && (s == R || s == I))) return;
  std::string names;
  for (const Spread s : allowed) names += (names.empty() ? "" : " or ") + text(s);
  fail({op, ": its input is ", text(spread), " over ", comm.description(), ", but ", names, " is needed; ",
        spread == unsaid ? how_to_say : advice});
}

void announce(const std::string& op, const Var& x, const Communicator& comm, Site site) {
  if (!x.tape() || x.tape()->observers().empty()) return;
  const std::string place = op + " at " + site.file + ":" + std::to_string(site.line);
  for (Tape::Observer* observer : x.tape()->observers()) observer->meeting(&comm, place);
}

Var vary(const Var& x, Communicator& comm, Site site) {
  announce(vary_op.name, x, comm, site);
  expect_spread("vary", x, comm, {I}, "only Invariant values need it");
  const Var y =
      record(vary_op, x.value(), from(x, [=, &comm](const Var& g) { return all_reduce_equal(g, comm, site); }));
  return spread_as(y, comm, R);
}

Var all_reduce_equal(const Var& x, Communicator& comm, Site site) {
  announce(all_reduce_equal_op.name, x, comm, site);
  expect_spread("all_reduce_equal", x, comm, {P, V}, "its value is complete on every rank already");
  const Var y = record(all_reduce_equal_op, comm.all_reduce(x.value(), ReduceOp::sum, site),
                       from(x, [=, &comm](const Var& g) { return vary(g, comm, site); }));
  return spread_as(y, comm, I);
}

Var all_gather_equal(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  announce(all_gather_equal_op.name, x, comm, site);
  expect_spread("all_gather_equal", x, comm, {V}, "its value is complete on every rank already");
  const Var y = record(all_gather_equal_op, comm.all_gather_v(x.value(), rows, site),
                       from(x, [=, &comm](const Var& g) { return own_rows(g, rows, comm, site); }));
  return spread_as(y, comm, I);
}

Var own_rows(const Var& x, const Rows& rows, Communicator& comm, Site site) {
  expect_spread("own_rows", x, comm, {R, I},
                "reduce_scatter takes rows of a sum, and Varying rows are a rank's own already");
  require(x.shape().rank() > 0 && x.shape()[0] == total_rows(rows), "own_rows: the counts say ", total_rows(rows),
          " rows, the tensor is ", x.shape());
  const bool equal_cotangents = follows(x) && spread_of(x, comm) == I;
  const int64_t begin = rows_before(rows, comm.rank().value), count = rows[static_cast<size_t>(comm.rank().value)];
  const Var y = record(own_rows_op, x.value().slice(begin, begin + count), from(x, [=, &comm](const Var& g) {
                         return equal_cotangents ? all_gather_equal(g, rows, comm, site) : padded_rows(g, rows, comm);
                       }));
  return spread_as(y, comm, V);
}

Var padded_rows(const Var& x, const Rows& rows, Communicator& comm) {
  expect_spread("padded_rows", x, comm, {V}, "only a rank's own rows can be a part of a sum of all ranks' rows");
  const int64_t before = rows_before(rows, comm.rank().value);
  return spread_as(pad(x, 0, before, total_rows(rows) - before - rows[static_cast<size_t>(comm.rank().value)]), comm,
                   P);
}

Var keep_on(const Var& x, GroupRank rank, Communicator& comm) {
  expect_spread("keep_on", x, comm, {R, I}, "only one of equal values can stand for their sum");
  const bool equal_cotangents = follows(x) && spread_of(x, comm) == I;
  const Var y = record(
      keep_on_op, comm.rank() == rank ? x.value() : Tensor::zeros(x.shape(), x.dtype(), x.device()),
      from(x, [=, &comm](const Var& g) { return equal_cotangents ? as_invariant(g, comm) : keep_on(g, rank, comm); }));
  return spread_as(y, comm, P);
}

Var as_invariant(const Var& x, Communicator& comm) {
  expect_spread("as_invariant", x, comm, {R},
                "all_reduce_equal and all_gather_equal make an Invariant value of others");
  const Var y = record(as_invariant_op, x.value(), from(x, [&comm](const Var& g) { return keep_on(g, {0}, comm); }));
  return spread_as(y, comm, I);
}

Var as_partial(const Var& x, Communicator& comm) {
  expect_spread("as_partial", x, comm, {V},
                "an equal value would be counted once per rank; keep_on one rank counts it once");
  return spread_as(same_values(as_partial_op, x), comm, P);
}

Var as_varying(const Var& x, Communicator& comm) {
  expect_spread("as_varying", x, comm, {R, unsaid}, "vary() an Invariant value, all_reduce a Partial one");
  return spread_as(same_values(as_varying_op, x), comm, V);
}

Var as_replicated(const Var& x, Communicator& comm) {
  expect_spread("as_replicated", x, comm, {unsaid}, "what is known to differ, or to be equal, stays so");
  return spread_as(same_values(as_replicated_op, x), comm, R);
}

}  // namespace weft
