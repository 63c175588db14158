// SPDX-License-Identifier: Apache-2.0
#include "tools/web/exercise.h"

#include <algorithm>
#include <cmath>

#include "tools/web/task.h"
#include "tools/web/with_backward.h"
#include "weft/collectives/checks/print_tapes.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::web {
namespace {

Rows rows_of(int ranks, bool uneven) {
  static constexpr int64_t some[most_ranks] = {2, 1, 3, 0, 2};
  Rows rows(static_cast<size_t>(ranks), 1);
  if (uneven) std::copy_n(some, ranks, rows.begin());
  return rows;
}

Task task_of(const Exercise& e) {
  const auto n = static_cast<size_t>(e.ranks);
  const GroupRank root{e.root};
  const Rows rows = rows_of(e.ranks, e.uneven), whole(n, e.uneven ? 2 : 1), all(n, total_rows(rows));
  const auto is = [&](const char* name) { return e.collective == name; };
  if (is("all_gather")) return {AllGather{rows}, rows};
  if (is("reduce_scatter")) return {ReduceScatter{rows}, all};
  if (is("all_reduce")) return {AllReduce{}, whole};
  if (is("broadcast")) return {Broadcast{root}, whole};
  if (is("reduce")) return {Reduce{root}, whole};
  if (is("gather")) return {Gather{root, rows}, rows};
  if (is("scatter")) {
    Rows inputs(n, 0);
    inputs[static_cast<size_t>(e.root)] = total_rows(rows);
    return {Scatter{root, rows}, inputs};
  }
  if (is("all_to_all")) {
    Counts counts(n, Rows(n, 1));
    Rows inputs(n);
    for (size_t r = 0; r < n; ++r) {
      for (size_t s = 0; s < n && e.uneven; ++s) counts[r][s] = static_cast<int64_t>((r + 2 * s + 1) % 3);
      inputs[r] = total_rows(counts[r]);
    }
    return {AllToAll{counts}, inputs};
  }
  if (is("permute")) {  // around the ring, and uneven: one rank reads nothing
    Sources sources(n);
    for (size_t r = 0; r < n; ++r) sources[r] = static_cast<int64_t>((r + n - 1) % n);
    if (e.uneven) sources[n - 1] = -1;
    return {Permute{sources}, whole};
  }
  if (is("scan")) return {Scan{}, whole};
  if (is("exscan")) return {Exscan{}, whole};
  require(is("drawn"), "there is no collective '", e.collective, "'");
  return {Sums{e.drawn}, whole};
}

void check_cells(const char* name, const Cells& cells, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  require(
      cells.size() == n && std::all_of(cells.begin(), cells.end(), [&](const auto& row) { return row.size() == n; }),
      name, ": a table of ", ranks, " x ", ranks, " cells is needed");
}

void check(const Exercise& e) {
  require(e.ranks >= 1 && e.ranks <= most_ranks, "ranks: ", e.ranks, ", not 1 to ", most_ranks);
  require(e.root >= 0 && e.root < e.ranks, "root: there is no rank ", e.root, " of ", e.ranks);
  if (e.collective == "drawn") check_cells("drawn", e.drawn, e.ranks);
  if (!e.backward.empty()) check_cells("backward", e.backward, e.ranks);
}

// A cell that the adjoint does not have reads what there is, from the first row on.
Backward backward_of(const Exercise& e, const Blocks& forward) {
  if (e.backward.empty()) return mistake_named(e.mistake).made_of(forward);
  Backward backward{forward.adjoint()};
  for (int r = 0; r < e.ranks; ++r)
    for (int s = 0; s < e.ranks; ++s) {
      Portion& cell = backward.blocks.at(r, s);
      const Portion first_rows{0, std::min(forward.exposed(r), backward.blocks.exposed(s)), 0};
      if (!e.backward[static_cast<size_t>(r)][static_cast<size_t>(s)])
        cell = {};
      else if (cell.count == 0 && first_rows.count > 0)
        cell = first_rows;
    }
  return backward;
}

class Rank {
 public:
  Rank(const Exercise& exercise, const Task& task, const Backward& backward, Communicator& comm)
      : exercise_(exercise), task_(task), backward_(backward), right_{task.blocks().adjoint()}, comm_(comm) {}

  // The tape of this rank is printed and noted, where they are given.
  Tensor cotangent(bool right, TapeTable* table = nullptr, std::string* printed = nullptr) {
    Tape tape;
    const TapeLog log(tape);
    const Var x = tape.watch(values(1, 0));
    const Var y = std::visit(
        [&](const auto& verb) {
          return right ? run_linear(verb, x, comm_, Site::here()) : with_backward(verb, backward_, x, comm_);
        },
        task_.verb);
    const Var loss = sum(y * tape.constant(factors(y.shape())));
    const Tensor result = tape.gradient(loss, {x})[0].value();
    if (table) *table = table_of(TapeLog::notes(tape), comm_);
    if (printed) *printed = text(tape, comm_);
    return result;
  }

  // <g, F x> and <F* g, x> of random x and g.
  std::pair<double, double> products(uint64_t draw) {
    const Tensor x = values(draw, 1);
    const Tensor y = std::visit([&](const auto& verb) { return comm_.run(verb, x); }, task_.verb);
    const Tensor g = Tensor::normal(y.shape(), random(draw, 2), 0, 1, DType::f64);
    const auto product = [&](const Tensor& a, const Tensor& b) {
      return sum_over_ranks(sum(Var(a) * Var(b)).value().item(), comm_);
    };
    return {product(g, y), product(applied(backward_, g, x.shape(), comm_), x)};
  }

 private:
  uint64_t me() const { return static_cast<uint64_t>(comm_.rank().value); }
  Random random(uint64_t draw, uint64_t kind) const { return {exercise_.seed + 1000 * draw, 10 * kind + me()}; }

  Tensor values(uint64_t draw, uint64_t kind) const {
    const Shape shape{task_.inputs[me()]};
    if (exercise_.seed == 0 && kind == 0) return Tensor::full(shape, static_cast<double>(me() + 1), DType::f64);
    return Tensor::normal(shape, random(draw, kind), 0, 1, DType::f64);
  }
  Tensor factors(const Shape& shape) const {
    if (exercise_.seed == 0) return Tensor::full(shape, std::pow(10, me()), DType::f64);
    return Tensor::normal(shape, random(0, 3), 0, 1, DType::f64);
  }

  const Exercise& exercise_;
  const Task& task_;
  const Backward& backward_;
  const Backward right_;
  Communicator& comm_;
};

std::vector<std::string> differences(const Backward& right, const Backward& given) {
  std::vector<std::string> all;
  for (int r = 0; r < right.blocks.ranks(); ++r)
    for (int s = 0; s < right.blocks.ranks(); ++s) {
      const Portion wanted = right.blocks.at(r, s), got = given.blocks.at(r, s);
      if (wanted == got) continue;
      const std::string to = "rank " + text(r), by = "what the loss of rank " + text(s) + " says";
      if (got.count == 0)
        all.push_back(to + " lacks " + by);
      else if (wanted.count == 0)
        all.push_back(to + " gets " + by + " of other ranks' values");
      else
        all.push_back(to + " gets " + by + ", of other rows");
    }
  if (given.factor != right.factor) all.push_back("all is multiplied by " + text(given.factor));
  return all;
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(a) + std::abs(b)); }

}  // namespace

Answer answer(const Exercise& exercise) {
  check(exercise);
  const Task task = task_of(exercise);
  const Blocks forward = task.blocks();
  const Backward right{forward.adjoint()}, backward = backward_of(exercise, forward);
  const bool is_right = equal_for_all(backward, right);
  Answer answer{forward, backward, {}, {}, std::vector<std::vector<double>>(forward.inputs.size()), {}};
  Verdict& verdict = answer.verdict;
  verdict.correct = true;
  verdict.shows = false;
  run_ranks(exercise.ranks, [&](Communicator& comm) {
    Rank rank(exercise, task, backward, comm);
    TapeTable table;
    std::string printed;
    const Tensor wanted = rank.cotangent(true), got = rank.cotangent(is_right, &table, &printed);
    const bool differ = comm.all_reduce(Tensor::full({}, wanted.values() != got.values())).item() > 0;
    for (uint64_t draw = 0; draw < 3; ++draw) {
      const auto [there, back] = rank.products(draw);
      if (comm.rank() != GroupRank{0}) continue;
      if (draw == 0) verdict.forward = there, verdict.backward = back;
      verdict.correct &= close(there, back);
    }
    answer.cotangents[static_cast<size_t>(comm.rank().value)] = got.values();
    if (comm.rank() != GroupRank{0}) return;
    verdict.shows = differ;
    answer.tapes = std::move(table);
    answer.printed = std::move(printed);
  });
  for (const Mistake& mistake : mistakes())
    if (equal_for_all(mistake.made_of(forward), backward)) verdict.names.push_back(&mistake);
  if (!is_right) verdict.differences = differences(right, backward);
  return answer;
}

}  // namespace weft::web
