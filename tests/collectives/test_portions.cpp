// SPDX-License-Identifier: Apache-2.0
// A program's own collectives: any matrix of portions has the value, the gradient and the second derivative of the
// dense matrix that it stands for, whether portions are missing, leave gaps, overlap, or nobody reads a row.
#include "tests/support/on_ranks.h"
#include "weft/collectives/linear_collective.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace test_portions {

constexpr int64_t width = 2;

// Portions of rows, and how many rows each rank has.
struct Matrix {
  Rows rows;
  std::vector<std::vector<Portion>> portions;  // by reader and source
};

// A collective by this matrix, or by its transpose.
struct Portions {
  std::shared_ptr<const Matrix> matrix;
  bool back = false;

  Portions adjoint() const { return {matrix, !back}; }
  Portion portion(int reader, int source) const {
    const auto at = [&](int r, int s) { return matrix->portions[static_cast<size_t>(r)][static_cast<size_t>(s)]; };
    if (!back) return at(reader, source);
    const Portion forward = at(source, reader);
    return {forward.to, forward.count, forward.from};
  }
  int64_t exposed(int rank) const { return back ? result_rows(rank) : rows_of_rank(matrix->rows, rank); }
  int64_t result_rows(int reader) const {
    int64_t rows = 0;
    for (const Portion& p : matrix->portions[static_cast<size_t>(reader)])
      if (p.count > 0) rows = std::max(rows, p.to + p.count);
    return rows;
  }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "portions";
  static constexpr bool by_rows = true, sums = false;
  static constexpr Placement result = Placement::varying;
};

Portions random_portions(int n, int seed) {
  uint64_t drawn = 0;
  const auto draw = [&](int64_t end) {
    const Random key{static_cast<uint64_t>(seed), drawn++};
    return static_cast<int64_t>(Tensor::uniform({1}, key, 0, static_cast<double>(end), DType::f64).item());
  };
  Matrix matrix;
  for (int r = 0; r < n; ++r) matrix.rows.push_back(draw(6));
  for (int reader = 0; reader < n; ++reader) {
    matrix.portions.emplace_back();
    for (int source = 0; source < n; ++source) {
      const int64_t rows = rows_of_rank(matrix.rows, source), from = draw(rows + 1);
      const int64_t count = draw(3) == 0 ? 0 : draw(rows - from + 1);
      matrix.portions.back().push_back({from, count, draw(5)});
    }
  }
  return {std::make_shared<const Matrix>(std::move(matrix))};
}

// What a rank gets from the tensors of all ranks, element by element.
template <class Verb> Tensor dense(const Verb& verb, const std::vector<Tensor>& x, int reader, int64_t rows) {
  std::vector<double> y(static_cast<size_t>(rows * width));
  for (int source = 0; source < static_cast<int>(x.size()); ++source) {
    const Portion p = verb.portion(reader, source);
    const std::vector<double> values = x[static_cast<size_t>(source)].values();
    for (int64_t i = 0; i < p.count * width; ++i)
      y[static_cast<size_t>(p.to * width + i)] += values[static_cast<size_t>(p.from * width + i)];
  }
  return Tensor::from({rows, width}, y, DType::f64);
}

template <class Call> void check(const Portions& verb, Communicator& comm, const Call& call) {
  const int me = number(comm);
  std::vector<Tensor> inputs, cotangents, directions;
  for (int r = 0; r < comm.size(); ++r) {
    const int64_t rows = rows_of_rank(verb.matrix->rows, r);
    inputs.push_back(data_of(r, {rows, width}, 1));
    directions.push_back(data_of(r, {rows, width}, 2));
    cotangents.push_back(data_of(r, {verb.result_rows(r), width}, 3));
  }
  const auto mine = static_cast<size_t>(me);
  Tape tape;
  const Var x = tape.watch(inputs[mine]), g = tape.watch(cotangents[mine]), y = call(x);
  expect_close(y, dense(verb, inputs, me, verb.result_rows(me)));
  const Var gradient = tape.gradient(y, g, {x}, Graph::create)[0];
  expect_close(gradient, dense(verb.adjoint(), cotangents, me, rows_of_rank(verb.matrix->rows, me)));
  const Var second = tape.gradient(gradient, Var(directions[mine]), {g})[0];
  expect_close(second, dense(verb, directions, me, verb.result_rows(me)));
}

// A program's own collective of rows, by a function.
template <Portion (*of)(int reader, int source), Portion (*back)(int reader, int source)> struct Own {
  Own<back, of> adjoint() const { return {}; }
  Portion portion(int reader, int source) const { return of(reader, source); }
  int64_t exposed(int) const { return 4; }
  Verb verb() const { return Verb::custom; }
  static constexpr const char* op_name = "own";
  static constexpr bool by_rows = true, divides = false, sums = false;
  static constexpr Placement result = Placement::varying;
};
Portion first_two(int, int) { return {0, 2, 0}; }
Portion two_for_each_other(int reader, int source) { return reader == source ? Portion{0, 2, 0} : Portion{0, 2, 1}; }
Portion too_many(int, int) { return {3, 2, 0}; }
Portion too_many_back(int, int) { return {0, 2, 3}; }

TEST_CASE("random matrices of portions equal their dense matrices, whole and in halves") {
  on_ranks({1, 2, 3, 4, 5}, [](Communicator& comm) {
    for (int seed = 0; seed < 60; ++seed) {
      const Portions verb = random_portions(comm.size(), seed);
      check(verb, comm, [&](const Var& x) { return run_linear(verb, x, comm, Site::here()); });
      check(verb, comm, [&](const Var& x) { return start(verb, x, comm).wait(); });
    }
  });
}

// The last and first row of the neighbours around one's own; overlapping windows that are added; sums of more and more
// rows; and rows that nobody reads.
TEST_CASE("halos, overlapping windows, unequal sums and unread rows have their exact adjoints") {
  on_ranks({1, 2, 3, 4, 5}, [](Communicator& comm) {
    const int n = comm.size();
    const auto all = [&](auto portion) {
      Matrix matrix{Rows(static_cast<size_t>(n), 4), {}};
      for (int reader = 0; reader < n; ++reader) {
        matrix.portions.emplace_back();
        for (int source = 0; source < n; ++source) matrix.portions.back().push_back(portion(reader, source));
      }
      const Portions verb{std::make_shared<const Matrix>(std::move(matrix))};
      check(verb, comm, [&](const Var& x) { return run_linear(verb, x, comm, Site::here()); });
    };
    all([](int reader, int source) {
      return source == reader       ? Portion{0, 4, 1}
             : source == reader - 1 ? Portion{3, 1, 0}
             : source == reader + 1 ? Portion{0, 1, 5}
                                    : no_portion;
    });
    all([](int reader, int source) {
      return std::abs(reader - source) < 2 ? Portion{0, 4, 2 * (source - reader + 1)} : no_portion;
    });
    all([](int, int source) { return Portion{0, 1 + source % 4, 0}; });
    all([](int reader, int source) { return reader == source ? Portion{1, 2, 0} : no_portion; });
  });
}

TEST_CASE("a program's own collective is refused if its adjoint is not its transpose, or it reads what is not there") {
  on_ranks({2, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(data_of(number(comm), {4, width}));
    expect_refusal([&] { run_linear(Own<first_two, two_for_each_other>{}, x, comm, Site::here()); },
                   {"own: its adjoint is not its transpose"});
    expect_refusal([&] { start(Own<first_two, two_for_each_other>{}, x, comm); },
                   {"own: its adjoint is not its transpose"});
    expect_refusal([&] { run_linear(Own<too_many, too_many_back>{}, x, comm, Site::here()); },
                   {"own: rank 0 of the group reads 2 from 3 on of 4 rows"});
  });
}

}  // namespace test_portions
