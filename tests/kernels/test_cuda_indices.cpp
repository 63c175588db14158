// SPDX-License-Identifier: Apache-2.0
// Bad indices on a card. The kernels that read them skip them, and the next wait throws the error that the CPU throws
// at once. The registry tells which ops have indices: an op without a case here fails.
#include <map>
#include <set>

#include "tests/kernels/cuda_checks.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/tape/observer.h"
#include "weft/engine/tape/op.h"

using namespace weft;

namespace test_cuda_indices {

// An op with six indices below `bound`.
struct Case {
  std::string op, one;
  std::function<Var(const Var& x, const Var& indices)> call;  // x is (6, 4)
  int64_t bound;
  Shape shape = {6};
  bool none = false;  // negative indices name nothing
};

Var scalar(const Var& like) { return constant_like(Tensor::full({}, 1, like.dtype(), like.device()), like); }

const std::vector<Case> cases = {
    {"gather_rows", "index", [](const Var& x, const Var& at) { return gather_rows(x, at); }, 6},
    {"scatter_add_rows", "index", [](const Var& x, const Var& at) { return scatter_add_rows(x, at, 3); }, 3},
    {"take_along", "index", [](const Var& x, const Var& at) { return take_along(x, at, 1); }, 4, {6, 1}},
    {"put_along",
     "index",
     [](const Var& x, const Var& at) { return put_along(slice(x, 1, 0, 1), at, 1, 3); },
     3,
     {6, 1}},
    {"one_hot", "class", [](const Var&, const Var& at) { return one_hot(at, 5); }, 5},
    {"cross_entropy", "target", [](const Var& x, const Var& at) { return cross_entropy(x, at); }, 4},
    {"score_log_sum_exp",
     "target",
     [](const Var& x, const Var& at) { return score_log_sum_exp(x, x, scalar(x), {}, at); },
     6,
     {6},
     true},
    {"score_log_sum_exp",
     "excluded column",
     [](const Var& x, const Var& at) { return score_log_sum_exp(x, x, scalar(x), at); },
     6,
     {6, 1},
     true},
    {"score_log_sum_exp_both",
     "target",
     [](const Var& x, const Var& at) { return score_log_sum_exp_both(x, x, scalar(x), at); },
     6,
     {6},
     true},
    {"score_softplus_sum",
     "target",
     [](const Var& x, const Var& at) { return score_softplus_sum(x, x, scalar(x), scalar(x), at); },
     6,
     {6},
     true},
};

// The last two of these are bad; the first bad one is to be named.
Tensor with_bad(const Case& c, int64_t bad) {
  return Tensor::from(c.shape, {0, 1, 2, 0, static_cast<double>(bad), static_cast<double>(bad)}, DType::i64);
}
std::string error_of(const Case& c, int64_t bad) {
  return c.op + ": " + c.one + " " + text(bad) + " at position 4 is not in 0.." + text(c.bound - 1);
}
Var data_for(Device device) { return Var(sample({6, 4}, DType::f32).to(device)); }

// The ops that have recorded an operand of i64.
class WithIndices final : public Tape::Observer {
 public:
  void watched(const Var&, const Parameter*) override {}
  void computed(const Var&, const Op& op, std::span<const Var* const> inputs) override {
    for (const Var* input : inputs)
      if (input->defined() && input->dtype() == DType::i64) names.insert(op.name);
  }
  void placement_changed(const Var&) override {}
  void walk_begins(bool) override {}
  void arrived(const Var&, const std::string&, int64_t, Placements) override {}
  void walk_ends(bool) override {}
  void collective_begins(const void*, const std::string&) override {}

  std::set<std::string> names;
};

TEST_CASE("every op of the registry with indices has a case of bad ones") {
  std::set<std::string> tested;
  for (const Case& c : cases) tested.insert(c.op);
  WithIndices seen;
  for (const Op* op : Op::all())
    for (const Sample& s : op->samples) {
      Tape tape;
      tape.observe(seen);
      std::vector<Var> inputs;
      for (const Shape& shape : s.shapes) inputs.push_back(tape.watch(Tensor::uniform(shape, {1}, s.low, s.high)));
      s.call(inputs);
    }
  CHECK(seen.names.size() >= 6);
  for (const std::string& name : seen.names) CHECK(tested.count(name) == 1);
}

TEST_CASE("a bad index is the same error on a card, at the next wait, once") {
  for (const Case& c : cases)
    for (const int64_t bad : {c.bound, int64_t{-1}, int64_t{1} << 40}) {
      INFO(c.op << ", " << c.one << " " << bad);
      const Tensor indices = with_bad(c, bad);
      const bool fine = bad < 0 && c.none;
      if (fine)
        CHECK_NOTHROW(c.call(data_for(Device::cpu), indices));
      else
        CHECK_THROWS_WITH(c.call(data_for(Device::cpu), indices), error_of(c, bad));
      if (!available(Device::cuda)) continue;
      const Var x = data_for(Device::cuda), y = c.call(x, indices.to(Device::cuda));
      if (fine)
        CHECK_NOTHROW(backend(Device::cuda).synchronize());
      else
        CHECK_THROWS_WITH(backend(Device::cuda).synchronize(), error_of(c, bad));
      CHECK_NOTHROW(y.value().to(Device::cpu));
      CHECK(sum(x).value().item() == sum(x.value().to(Device::cpu)).value().item());
    }
}

TEST_CASE("of several bad indices on a card the first one is named, and reading a result throws it") {
  SKIP_WITHOUT_A_CARD();
  const Var x = data_for(Device::cuda);
  const auto some = [](double last) { return Tensor::from({3}, {0, 1, last}, DType::i64).to(Device::cuda); };
  const Var right = gather_rows(x, some(5)), first = gather_rows(x, some(6)), second = one_hot(some(-7), 3);
  CHECK_THROWS_WITH(sum(right).value().item(), "gather_rows: index 6 at position 2 is not in 0..5");
  CHECK_NOTHROW(sum(right).value().item());
  const Tensor many = Tensor::full({300000}, 6, DType::i64, Device::cuda);
  many.slice(0, 77).copy_from(Tensor::zeros({77}, DType::i64));
  gather_rows(x, many);
  CHECK_THROWS_WITH(backend(Device::cuda).synchronize(), "gather_rows: index 6 at position 77 is not in 0..5");
}

TEST_CASE("bad indices on a card are found even if there is nothing to read or write") {
  SKIP_WITHOUT_A_CARD();
  const Tensor zeros = Tensor::zeros({2}, DType::i64, Device::cuda);
  const auto empty = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32, Device::cuda); };
  const std::vector<std::function<void()>> calls = {
      [&] {
        gather_rows(empty({0, 3}), zeros);
      },
      [&] {
        scatter_add_rows(empty({2, 3}), zeros, 0);
      },
      [&] { one_hot(zeros, 0); },
      [&] {
        cross_entropy(empty({2, 0}), zeros);
      },
      [&] {
        score_log_sum_exp(empty({2, 3}), empty({0, 3}), Tensor::full({}, 1).to(Device::cuda), {}, zeros);
      },
  };
  for (const auto& call : calls) {
    call();
    CHECK_THROWS_WITH(backend(Device::cuda).synchronize(), Catch::EndsWith(" 0 at position 0 is not in 0..-1"));
  }
}

// Runs a verb whose output is the middle of a tensor of sevens, and returns the tensor.
template <class Verb> std::vector<double> around(const Shape& shape, const Verb& verb) {
  Tensor all = Tensor::full({shape.size() + 16}, 7, DType::f32, Device::cuda);
  Tensor y = all.slice(8, shape.size() + 8).reshape(shape);
  verb(backend(Device::cuda), y);
  CHECK_THROWS_WITH(backend(Device::cuda).synchronize(), Catch::StartsWith("a test: index "));
  return all.values();
}

TEST_CASE("kernels on a card write nothing at bad indices") {
  SKIP_WITHOUT_A_CARD();
  const Tensor x = Tensor::full({4, 5}, 1, DType::f32, Device::cuda),
               g = Tensor::full({4}, 1, DType::f32, Device::cuda);
  for (const double bad : {5.0, -1.0, 6.0, -2.0}) {
    const Tensor at = Tensor::from({4}, {bad, 0, 0, bad}, DType::i64).to(Device::cuda);
    const Indices bad_indices = indices(at, 5);
    const auto edges = [](const std::vector<double>& all) {
      return std::count(all.begin(), all.begin() + 8, 7) + std::count(all.end() - 8, all.end(), 7);
    };
    const auto gathered = around({4, 5}, [&](Backend& d, Tensor& y) { d.gather_rows(x, bad_indices, y); });
    CHECK(std::count(gathered.begin(), gathered.end(), 7) == 16 + 2 * 5);
    CHECK(edges(around({5, 5}, [&](Backend& d, Tensor& y) { d.scatter_add_rows(x, bad_indices, y); })) == 16);
    const auto hot = around({4, 5}, [&](Backend& d, Tensor& y) { d.one_hot(bad_indices, y); });
    CHECK(edges(hot) == 16);
    CHECK(std::count(hot.begin(), hot.end(), 1) == 2);
    CHECK(edges(around({4}, [&](Backend& d, Tensor& y) { d.cross_entropy_rows(x, bad_indices, y); })) == 16);
    const auto slopes =
        around({4, 5}, [&](Backend& d, Tensor& y) { d.cross_entropy_rows_pullback(x, bad_indices, g, y); });
    CHECK(edges(slopes) == 16);
    CHECK(std::count_if(slopes.begin(), slopes.end(), [](double v) { return v < 0; }) == 2);
  }
}

}  // namespace test_cuda_indices
