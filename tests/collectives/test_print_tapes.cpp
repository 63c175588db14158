// SPDX-License-Identifier: Apache-2.0
// What is printed of tapes: every rank's nodes, values, placements and cotangents, in lines that ranks share.
#include "weft/collectives/checks/print_tapes.h"

#include <set>
#include <sstream>

#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/tape_table.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream from(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(from, line);) lines.push_back(line);
  return lines;
}

// Rank r has r rows of r + 1, and counts the rows of all ranks, times a parameter, base^r times.
struct UnevenTape {
  Communicator& comm;
  const double base;
  const Parameter w{"w", Tensor::full({1, 1}, 2)};
  const Rows rows = comm.rows_of(number(comm));
  Tape tape;
  TapeLog log{tape};
  const Var x = tape.watch(Tensor::full({number(comm), 1}, number(comm) + 1));
  const Var all = all_gather_v(matmul(x, tape.watch(w)), rows, comm);
  const Var loss = sum(all) * tape.constant(Tensor::full({}, std::pow(base, number(comm))));
  Gradients gradients;

  UnevenTape(Communicator& comm, double base) : comm(comm), base(base) {}
  void backward() { tape.backward(loss, gradients); }
};

// The text of a rank's column in the line that begins with `what`, or in the line of its cotangent.
std::string cell(const std::vector<std::string>& lines, const std::string& what, int rank, bool cotangent) {
  size_t column = std::string::npos, next = column;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with("node")) {
      column = lines[i].find("rank " + text(rank));
      next = lines[i].find("rank " + text(rank + 1));
    }
    if (column == std::string::npos || !lines[i].starts_with(what)) continue;
    const std::string& line = lines[i + (cotangent ? 1 : 0)];
    const std::string cell = line.substr(std::min(column, line.size()), next - column);
    return cell.substr(0, cell.find_last_not_of(' ') + 1);
  }
  return "no such line";
}

// "[[7], [7]]", or for a narrow column "2x1 ".
void expect_rows(const std::string& cell, double value, int count) {
  const std::string all = text(Tensor::full({count, 1}, value)), whole = all.substr(all.find('['));
  expect(cell == whole || (count > 1 && cell.starts_with(text(count) + "x1 ") && cell.ends_with(" " + text(value))),
         cell + " is not " + whole);
}

void expect_text(const std::string& actual, const std::string& expected, Site site = Site::here()) {
  expect(actual == expected, "printed is\n" + actual + "\nand not\n" + expected, site);
}

}  // namespace

TEST_CASE("tapes of three ranks are printed side by side, with values, placements and cotangents") {
  on_ranks({3}, [](Communicator& comm) {
    UnevenTape program(comm, 10);
    program.backward();
    expect_text(text(program.tape, comm),
                R"(node                          rank 0                 rank 1                 rank 2
0 leaf                      V []                     [[2]]                  [[3], [3]]
   cotangent                  []                     [[222]]                [[222], [222]]
1 parameter w               R [[2]]                  [[2]]                  [[2]]
   cotangent                  [[0]]                  [[222]]                [[666]]
2 matmul(0, 1)              V []                     [[4]]                  [[6], [6]]
   cotangent                  []                     [[111]]                [[111], [111]]
3 all_gather(2) =========== R [[4], [6], [6]] ====== [[4], [6], [6]] ====== [[4], [6], [6]] ======
   cotangent                  [[1], [1], [1]]        [[10], [10], [10]]     [[100], [100], [100]]
4 sum of all(3)             R 16                     16                     16
   cotangent                  1                      10                     100
5 mul(4, const)             V 16                     160                    1600
   cotangent                  1                      1                      1
)");
  });
}

TEST_CASE("each rank's column has that rank's values and cotangents, within 100 columns") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    UnevenTape program(comm, 2);
    program.backward();
    const std::vector<std::string> lines = lines_of(text(program.tape, comm));
    for (const std::string& line : lines) expect(line.size() <= 100, line);
    double of_a_row = 0;
    for (int r = 0; r < comm.size(); ++r) of_a_row += 2 * std::pow(2, r);
    for (int r = 0; r < comm.size(); ++r) {
      expect_rows(cell(lines, "0 leaf", r, false), r + 1, r);
      expect_rows(cell(lines, "0 leaf", r, true), of_a_row, r);
    }
  });
}

TEST_CASE("what only some ranks do has lines of its own, before the next collective of all") {
  on_ranks({2}, [](Communicator& comm) {
    Tape tape;
    TapeLog log(tape);
    Var x = tape.watch(Tensor::full({}, 1));
    if (number(comm) == 1) x = x + x;
    all_reduce(x, comm);
    expect_text(text(tape, comm), R"(node                          rank 0                             rank 1
0 leaf                      V 1                                  1
1 add(0, 0)                 V                                    2
1 all_reduce(0) =========== R 3 ================================ 3 ================================
)");
  });
}

TEST_CASE("nodes with other inputs have lines of their own, and a checkpoint at the end has its cotangent") {
  on_ranks({2}, [](Communicator& comm) {
    Tape tape;
    TapeLog log(tape);
    const Var a = tape.watch(Tensor::full({}, 2)), b = tape.watch(Tensor::full({}, 3));
    const Var product = number(comm) == 0 ? a * b : b * a;
    const Var last = checkpoint([](std::span<const Var> in) { return Vars{square(in[0])}; }, {product})[0];
    tape.gradient(last, Tensor::full({}, 1), {a});
    expect_text(text(tape, comm), R"(node                          rank 0                             rank 1
0 leaf                      V 2                                  2
   cotangent                  36                                 36
1 leaf                      V 3                                  3
2 mul(0, 1)                 V 6
   cotangent                  12
3 checkpoint                V scalar
   cotangent                  1
2 mul(1, 0)                 V                                    6
   cotangent                                                     12
3 checkpoint                V                                    scalar
   cotangent                                                     1
)");
  });
}

TEST_CASE("a placement has a letter for each group that the tape knows") {
  on_ranks({4}, [](Communicator& comm) {
    const auto rows = comm.split(number(comm) / 2), columns = comm.split(number(comm) % 2);
    Tape tape;
    TapeLog log(tape);
    all_reduce(all_reduce(tape.watch(Tensor::full({}, 1)), *rows), *columns);
    expect_text(text(tape, comm),
                R"(node                          rank 0           rank 1           rank 2           rank 3
0 leaf                    VVV 1                1                1                1
1 all_reduce(0) ========= RVV 2 ============== 2 ============== 2 ============== 2 ==============
2 all_reduce(1) ========= RVR 4 ============== 4 ============== 4 ============== 4 ==============
)");
  });
}

TEST_CASE("many values are printed as shape, digest and the first of them") {
  on_ranks({1}, [](Communicator& comm) {
    Tape tape;
    TapeLog log(tape);
    Tensor values = Tensor::uniform({30, 30}, {.seed = 1});
    tape.watch(values);
    values = values.clone();
    values.mutate<float>()[899] += 1;
    tape.watch(values);
    expect_text(text(tape, comm), R"(node                          rank 0
0 leaf                      V 30x30 9f3a 0.890259 0.894685 0.585726 0.711268
1 leaf                      V 30x30 ba91 0.890259 0.894685 0.585726 0.711268
)");
  });
}

// How many different digests the ranks have in a line of 4000 x 40 values, such as "4000x40 718d 1 1 1 1".
size_t digests(const TapeTable& table, size_t line, TapeTable::Excerpt TapeTable::Cell::*which) {
  std::set<std::string> different;
  for (const auto& cell : table.lines.at(line).ranks) different.insert(((*cell).*which).brief.substr(8, 4));
  return different.size();
}

TEST_CASE("one value that differs is seen where ranks should have equal ones, and a fortieth of all elsewhere") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    // Ones, but for some values of the last rank.
    const auto ones_but = [&](int64_t begin, int64_t count) {
      Tensor x = Tensor::full({4000, 40}, 1);
      if (number(comm) == comm.size() - 1) std::fill_n(x.mutate<float>() + begin, count, 2.F);
      return x;
    };
    const Parameter same("same", ones_but(0, 0)), one("one", ones_but(123'457, 1)), row("row", ones_but(40 * 17, 40));
    Tape tape;
    TapeLog log(tape);
    for (const Parameter* each : {&same, &one, &row}) tape.watch(*each);
    const Var some = tape.watch(ones_but(101'000, 4000));
    with_placements(square(tape.watch(ones_but(159'999, 1))), Placements(Placement::replicated));
    tape.gradient(as_partial(some, comm), ones_but(77'777, 1), {some});
    const TapeTable table = table_of(TapeLog::notes(tape), comm);
    const auto values = &TapeTable::Cell::value, cotangents = &TapeTable::Cell::cotangent;
    expect(digests(table, 0, values) == 1, "equal parameters");
    expect(digests(table, 1, values) == 2 && digests(table, 2, values) == 2, "parameters that differ");
    expect(digests(table, 3, values) == 2, "a fortieth of a leaf");
    expect(digests(table, 5, values) == 2, "a result that is said to be Replicated");
    expect(digests(table, 6, cotangents) == 2, "the cotangent of a Partial value");
  });
}

TEST_CASE("a tape without a log has ops, inputs, placements and shapes") {
  run_ranks(1, [](Communicator& comm) {
    const Parameter w("w", Tensor::full({3, 2}, 1));
    Tape tape;
    const Var x = tape.watch(Tensor::full({4, 3}, 1));
    all_gather(matmul(x, tape.watch(w)), comm);
    expect_text(text(tape), R"(node                          rank 0
0 leaf                      V 4x3
1 parameter w               R 3x2
2 matmul(0, 1)              V 4x2
3 all_gather(2) =========== R 4x2 =================================================================
)");
  });
}

TEST_CASE("cotangents are those of the last backward or query, and a checkpoint is one node") {
  run_ranks(1, [](Communicator& comm) {
    Tape tape;
    TapeLog log(tape);
    const Var x = tape.watch(Tensor::full({}, 3)), y = x * x;
    const Var z = checkpoint([](std::span<const Var> in) { return Vars{square(in[0]) * in[0]}; }, {y})[0];
    const Var factor = tape.watch(Tensor::full({}, 2));
    tape.gradient(z * factor, {x, factor});
    const std::string first = text(tape, comm);
    tape.gradient(y, {x});
    expect_text(first + text(tape, comm), R"(node                          rank 0
0 leaf                      V 3
   cotangent                  2916
1 mul(0, 0)                 V 9
   cotangent                  486
2 checkpoint                V scalar
   cotangent                  2
3 leaf                      V 2
   cotangent                  729
4 mul(2, 3)                 V 1458
   cotangent                  1
node                          rank 0
0 leaf                      V 3
   cotangent                  6
1 mul(0, 0)                 V 9
   cotangent                  1
2 checkpoint                V scalar
   cotangent                  0
3 leaf                      V 2
4 mul(2, 3)                 V 1458
   cotangent                  0
)");
  });
}

TEST_CASE("a record has the tapes of one step, when they are gone, and where their collectives were called") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    TapeRecord record;
    const auto step = [&](double base) {
      for (int i = 0; i < 2; ++i) {
        Tape tape;
        record.add(tape);
        record.add(tape);
        const Var x = tape.watch(Tensor::full({}, std::pow(base, number(comm))));
        const Var sum = all_reduce(x, comm, ReduceOp::sum, Site{"one.cpp", 17, ""});
        Gradients gradients;
        tape.backward(i == 0 ? sum * sum : sum, gradients);
      }
    };
    step(10);
    expect(record.take(comm).empty(), "nothing is recorded before it is asked for");
    record.on = true;
    step(2);
    const std::vector<TapeTable> tapes = record.take(comm);
    expect(tapes.size() == 2 && record.take(comm).empty(), "two tapes, once");
    for (const TapeTable& tape : tapes) {
      const TapeTable::Line &x = tape.lines.at(0), &sum = tape.lines.at(1);
      expect(sum.op == "all_reduce" && sum.place == "one.cpp:17" && sum.collective, sum.op + " at " + sum.place);
      for (size_t other = 2; other < tape.lines.size(); ++other) expect(tape.lines[other].place.empty(), "no call");
      for (size_t r = 0; r < x.ranks.size(); ++r) {
        const double total = std::pow(2, comm.size()) - 1;
        expect(x.ranks[r]->value.whole == text(std::pow(2, r)) && sum.ranks[r]->value.whole == text(total), "values");
        expect(x.ranks[r]->cotangent.whole == text(&tape == &tapes[0] ? 2 * total : 1), "cotangents");
      }
    }
  });
}
