// SPDX-License-Identifier: Apache-2.0
// Conversions between placements, and from a loss of any placement to the gradient of its objective.
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace test_placement_conversions {

using namespace placement_letters;

using All = std::vector<Var>;  // one per rank

// One rank's view of uneven rows that are sharded over a group.
struct Division {
  Rows rows;
  size_t me;
  explicit Division(const Communicator& comm) : me(static_cast<size_t>(number(comm))) {
    for (int r = 0; r < comm.size(); ++r) rows.push_back((r + 1) % 3);  // 1 2 0 1 2
  }
  int64_t before() const { return std::accumulate(rows.begin(), rows.begin() + static_cast<int>(me), int64_t{0}); }
  int64_t whole() const { return std::accumulate(rows.begin(), rows.end(), int64_t{0}); }
  Var mine(const Var& x) const { return slice(x, 0, before(), before() + rows[me]); }
};

// A rank's expected value, given all ranks' values.
using Expected = Var (*)(const Division&, const All&);
const Expected same = [](auto&d, auto&x) { return x[d.me]; },
               sums =
                   [](auto&, auto&x) {
                     return total(0, static_cast<int>(x.size()), [&](int r) { return x[static_cast<size_t>(r)]; });
                   },
               joined = [](auto&, auto&x) { return concat(x, 0); },
               mine = [](auto&d, auto&x) { return d.mine(x[d.me]); },
               my_sums = [](auto&d, auto&x) { return d.mine(sums(d, x)); },
               around = [](auto&d,
                           auto&x) { return pad(x[d.me], 0, d.before(), d.whole() - d.before() - d.rows[d.me]); },
               on_first = [](auto&d, auto&x) { return x[d.me] * (d.me == 0 ? 1 : 0); },
               on_last = [](auto&d, auto&x) { return x[d.me] * (d.me + 1 == x.size() ? 1 : 0); };

enum class Height : uint8_t { whole, own };  // rows of a value: all, or this rank's

struct Conversion {
  const char* name;
  Placement from, to;
  Height before, after;
  Var (*call)(const Var&, const Rows&, Communicator&);
  Expected value, gradient;
};
constexpr Height whole = Height::whole, own = Height::own;
const Conversion conversions[] = {
    {"vary", I, R, whole, whole, [](auto& x, auto&, auto& comm) { return vary(x, comm); }, same, sums},
    {"all_reduce_equal", P, I, whole, whole, [](auto& x, auto&, auto& comm) { return all_reduce_equal(x, comm); }, sums,
     same},
    {"all_reduce_equal", V, I, whole, whole, [](auto& x, auto&, auto& comm) { return all_reduce_equal(x, comm); }, sums,
     same},
    {"all_gather_equal", V, I, own, whole,
     [](auto& x, auto& rows, auto& comm) { return all_gather_equal(x, rows, comm); }, joined, mine},
    {"own_rows", R, V, whole, own, [](auto& x, auto& rows, auto& comm) { return own_rows(x, rows, comm); }, mine,
     around},
    {"own_rows", I, V, whole, own, [](auto& x, auto& rows, auto& comm) { return own_rows(x, rows, comm); }, mine,
     joined},
    {"padded_rows", V, P, own, whole, [](auto& x, auto& rows, auto& comm) { return padded_rows(x, rows, comm); },
     around, mine},
    {"keep_on", R, P, whole, whole, [](auto& x, auto&, auto& comm) { return keep_on(x, {comm.size() - 1}, comm); },
     on_last, on_last},
    {"keep_on", I, P, whole, whole, [](auto& x, auto&, auto& comm) { return keep_on(x, {comm.size() - 1}, comm); },
     on_last, same},
    {"as_invariant", R, I, whole, whole, [](auto& x, auto&, auto& comm) { return as_invariant(x, comm); }, same,
     on_first},
    {"as_partial", V, P, whole, whole, [](auto& x, auto&, auto& comm) { return as_partial(x, comm); }, same, same},
    {"as_varying", R, V, whole, whole, [](auto& x, auto&, auto& comm) { return as_varying(x, comm); }, same, same},
    {"as_varying", unknown, V, whole, whole, [](auto& x, auto&, auto& comm) { return as_varying(x, comm); }, same,
     same},
    {"as_replicated", unknown, R, whole, whole, [](auto& x, auto&, auto& comm) { return as_replicated(x, comm); }, same,
     same},
    {"all_reduce", P, R, whole, whole, [](auto& x, auto&, auto& comm) { return all_reduce(x, comm); }, sums, sums},
    {"all_reduce", V, R, whole, whole, [](auto& x, auto&, auto& comm) { return all_reduce(x, comm); }, sums, sums},
    {"all_gather_v", V, R, own, whole, [](auto& x, auto& rows, auto& comm) { return all_gather_v(x, rows, comm); },
     joined, my_sums},
    {"reduce_scatter_v", P, V, whole, own,
     [](auto& x, auto& rows, auto& comm) { return reduce_scatter_v(x, rows, comm); }, my_sums, joined}};

// All ranks' values with a placement, equal if it says so.
All values_of(Placement placement, Height height, const Division& d, int use) {
  All all;
  for (size_t r = 0; r < d.rows.size(); ++r)
    all.push_back(data_of(placement == R || placement == I ? 0 : static_cast<int>(r),
                          {height == own ? d.rows[r] : d.whole(), 3}, use));
  return all;
}

TEST_CASE("every placement conversion maps values and cotangents as its pair states, with the right placements") {
  for (const Conversion& c : conversions) {
    INFO(c.name << " from " << text(c.from));
    on_ranks([&](Communicator& comm) {
      const Division d(comm);
      const All x = values_of(c.from, c.before, d, 1), g = values_of(dual(c.to), c.after, d, 2);
      Tape tape;
      const Var input = with_placement(tape.watch(x[d.me].value()), comm, c.from), y = c.call(input, d.rows, comm);
      expect(placement_of(y, comm) == c.to, "the result is " + text(placement_of(y, comm)));
      expect_close(y, c.value(d, x));
      for (const Graph graph : {Graph::none, Graph::create}) {
        const Var by_input = tape.gradient(y, g[d.me], {input}, graph)[0];
        expect_close(by_input, c.gradient(d, g));
        if (graph == Graph::create)
          expect(placement_of(by_input, comm) == dual(c.from), "the gradient is " + text(placement_of(by_input, comm)));
      }
    });
  }
}

TEST_CASE("Replicated and Partial are dual, the others self-dual, and constants have no gradient") {
  CHECK((dual(R) == P && dual(P) == R && dual(V) == V && dual(I) == I && dual(unknown) == unknown));
  CHECK(dual(Placement::constant) == unknown);
}

TEST_CASE("an objective has the same gradient for every placement of its loss") {
  using Loss = Var (*)(const Var& share, Communicator&);
  const std::pair<const char*, Loss> losses[] = {
      {"each rank's share", [](auto& l, auto&) { return l; }},
      {"a pending sum", [](auto& l, auto& comm) { return as_partial(l, comm); }},
      {"the sum", [](auto& l, auto& comm) { return all_reduce(l, comm); }},
      {"the sum, for equal use", [](auto& l, auto& comm) { return all_reduce_equal(l, comm); }},
      {"the sum, used equally and then varied",
       [](auto& l, auto& comm) { return vary(all_reduce_equal(l, comm), comm); }},
      {"the sum on the root", [](auto& l, auto& comm) { return reduce(l, {comm.size() - 1}, comm); }},
      {"the sum kept by one rank", [](auto& l, auto& comm) { return keep_on(all_reduce(l, comm), {0}, comm); }},
      {"the parts gathered", [](auto& l, auto& comm) { return sum(all_gather(reshape(l, {1}), comm)); }},
      {"the parts gathered, for equal use",
       [](auto& l, auto& comm) {
         return sum(all_gather_equal(reshape(l, {1}), Rows(static_cast<size_t>(comm.size()), 1), comm));
       }},
      {"the last of the prefix sums", [](auto& l, auto& comm) {
         const Var sums = scan(l, comm);
         return number(comm) + 1 == comm.size() ? sums : sums * 0;
       }}};
  for (const auto& [what, loss_of] : losses) {
    INFO(what);
    on_ranks([&, loss_of = loss_of](Communicator& comm) {
      const auto share = [](const Var& w, const Var& x, int r) { return sum(square(w * x) * Var(data_of(r, {3}, 2))); };
      const Parameter w("w", data_of(0, {3}));
      Tape one, tape;
      const Var x = tape.watch(data_of(number(comm), {3}, 1)), y = one.watch(x.value());
      const Var whole =
          total(comm, [&](int r) { return share(one.watch(w), r == number(comm) ? y : data_of(r, {3}, 1), r); });
      const Var loss = loss_of(share(tape.watch(w), x, number(comm)), comm);
      const std::vector<Var> expected = one.gradient(whole, {one.watch(w), y}),
                             actual = tape.gradient(loss, {tape.watch(w), x});
      expect_close(comm.all_reduce(actual[0].value()), expected[0]);  // a Replicated parameter's gradient is Partial
      expect_close(actual[1], expected[1]);
      Gradients grads;
      tape.backward(loss, grads);
      expect_close(grads[w], actual[0]);
    });
  }
}

}  // namespace test_placement_conversions
