// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far a loss on the ranks of a group is from one process with the whole batch, in its value (the sum of the ranks'
// shares) and its gradients. Every rank makes the comparison and gets the same result; `check` throws if the difference
// is too large.
#include <algorithm>
#include <cmath>

#include "tests/cases/losses/loss_case.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

class LossComparison {
 public:
  struct Result {
    double value = 0;     // relative to the expected value, or to 1e-3 if that is larger
    double gradient = 0;  // the largest of any element, relative to the largest element of that input's gradient
  };

  // The ranks compute on `device`, the one process on the CPU.
  explicit LossComparison(const LossCase& c, Device device = Device::cpu) : case_(c), device_(device) {
    uint64_t stream = 40;
    const auto draw = [&](const Shape& shape) {
      return Tensor::uniform(shape, {29, ++stream}, c.drawn.low, c.drawn.high, DType::f64);
    };
    for (const Shape& row : c.drawn.rows) rows_.push_back(draw(row.with_inserted(0, c.drawn.samples)));
    for (const Shape& shape : c.drawn.shared) shared_.push_back(draw(shape));
  }

  void check(Communicator& comm) const {
    const auto [value, gradient] = (*this)(comm);
    require(value <= limit && gradient <= limit, case_.distributed.name,
            ": the ranks' shares are not the loss of the whole batch on one process, the value is off by ", value,
            " and gradients by ", gradient, "; divide sums by the count of all ranks, see share()");
  }

  static constexpr double limit = 1e-11;

  Result operator()(Communicator& comm) const {
    const Graded expected = graded(nullptr), actual = graded(&comm);
    Result result;
    const double value = sum_over_ranks(actual.value, comm);
    result.value = std::abs(value - expected.value) / std::max(1e-3, std::abs(expected.value));
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Tensor mine = actual.gradients[i];
      result.gradient = std::max(
          result.gradient, difference(comm.all_gather_v(mine, case_.division(comm.size())), expected.gradients[i]));
    }
    for (size_t i = rows_.size(); i < actual.gradients.size(); ++i)
      result.gradient =
          std::max(result.gradient, difference(comm.all_reduce(actual.gradients[i]), expected.gradients[i]));
    return result;
  }

 private:
  struct Graded {
    double value;
    std::vector<Tensor> gradients;  // those of rows, then those of shared inputs
  };

  // Runs the loss on the ranks of a group, or on one process.
  Graded graded(Communicator* comm) const {
    Tape tape;
    if (comm) declare_group(tape, *comm);
    const int rank = comm ? comm->rank().value : 0, ranks = comm ? comm->size() : 1;
    const Device device = comm ? device_ : Device::cpu;
    Vars rows, shared, all;
    const LossCase::Inputs division = case_.inputs({}, {}, rank, ranks);
    const int64_t mine = case_.division(ranks)[static_cast<size_t>(rank)];
    for (const Tensor& t : rows_) rows.push_back(tape.watch(t.slice(division.first, division.first + mine).to(device)));
    for (const Tensor& t : shared_) {
      const Var leaf = tape.watch(t.to(device));
      shared.push_back(comm ? with_placement(leaf, *comm, Placement::replicated) : leaf);
    }
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), shared.begin(), shared.end());
    const LossCase::Inputs inputs = case_.inputs(rows, shared, rank, ranks);
    const Var loss = comm ? case_.share(inputs, *comm) : case_.whole(inputs);
    if (comm) expect_placement(case_.distributed.name, loss, *comm, {Placement::partial}, "a loss is a rank's share");
    Graded result{loss.value().item(), {}};
    for (const Var& g : tape.gradient(loss, {all.begin(), all.end()})) result.gradients.push_back(g.value());
    return result;
  }

  static double difference(const Tensor& actual, const Tensor& expected) {
    const auto a = actual.values(), e = expected.values();
    double largest = 0, apart = 0;
    for (size_t i = 0; i < e.size(); ++i) {
      largest = std::max(largest, std::abs(e[i]));
      apart = std::isfinite(a[i]) ? std::max(apart, std::abs(a[i] - e[i])) : INFINITY;
    }
    return largest > 0 ? apart / largest : apart;
  }

  const LossCase& case_;
  const Device device_;
  std::vector<Tensor> rows_, shared_;
};

}  // namespace weft
