// SPDX-License-Identifier: Apache-2.0
// Every linear collective is a matrix of portions, and its adjoint is the transpose of that matrix.
#include "tests/cases/collectives/case_rows.h"
#include "tests/support/catch.h"
#include "weft/collectives/verbs.h"

using namespace weft;

namespace {

// On n ranks: the adjoint returns each portion to where it was read, and every rank exposes as much as is read.
template <LinearCollective C> void check_transpose(const C& collective, int n) {
  INFO(name(collective.verb()) << " on " << n << " ranks");
  const auto adjoint = collective.adjoint();
  const auto back = adjoint.adjoint();
  for (int source = 0; source < n; ++source) {
    int64_t taken = 0;
    for (int reader = 0; reader < n; ++reader) {
      const Portion forward = collective.portion(reader, source), backward = adjoint.portion(source, reader);
      CHECK(forward.count == backward.count);
      CHECK(back.portion(reader, source) == forward);
      if (forward.count > 0) CHECK((backward.from == forward.to && backward.to == forward.from));
      taken = std::max(taken, forward.from + forward.count);
    }
    CHECK(taken <= collective.exposed(source));
    if (C::by_rows) CHECK(taken == collective.exposed(source));
  }
}

}  // namespace

TEST_CASE("the adjoint of a linear collective is the transpose of its matrix") {
  for (const int n : {1, 2, 3, 5, 8}) {
    const Rows rows = case_rows::uneven_of(n), none(static_cast<size_t>(n), 0);
    const GroupRank root{n / 2};
    const Sources tree = case_rows::tree(n), nobody(static_cast<size_t>(n), -1);
    for (const Rows& each : {rows, none, Rows(static_cast<size_t>(n), 2)}) {
      check_transpose(AllGather{each}, n);
      check_transpose(ReduceScatter{each}, n);
      check_transpose(Gather{root, each}, n);
      check_transpose(Scatter{root, each}, n);
    }
    check_transpose(AllReduce{}, n);
    check_transpose(Reduce{root}, n);
    check_transpose(Broadcast{root}, n);
    check_transpose(AllToAll{case_rows::uneven_counts(n)}, n);
    check_transpose(Permute{tree}, n);
    check_transpose(Permute{nobody}, n);
    check_transpose(Permute{tree, true}, n);
    check_transpose(Scan{}, n);
    check_transpose(Exscan{ReduceOp::sum, true}, n);
  }
}
