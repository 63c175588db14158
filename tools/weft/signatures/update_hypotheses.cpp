// SPDX-License-Identifier: Apache-2.0
// What the optimizer makes of each mistake of a reducer, and its own mistakes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

using Kind = Placement::Kind;
using ByRank = std::vector<Matrix>;
using Axes = std::vector<size_t>;

double squares_of(const ByRank& gradients, const Layout& layout, const Mesh& mesh) {
  double copies = 1, sum = 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    if (layout.reduced[axis].kind == Kind::replicate) copies *= mesh.axes[axis].size;
  for (const Matrix& each : gradients) sum += each.squaredNorm();
  return sum / copies;
}

Matrix sum_of(const ByRank& all) { return std::accumulate(all.begin() + 1, all.end(), all[0]); }

class UpdateModel {
 public:
  std::vector<Hypothesis> all = {};

  UpdateModel(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding)
      : parameter_(parameter),
        rule_(*dump.optimizer),
        mesh_(mesh_of(dump)),
        layout_(layout_of(parameter, dump)),
        rounding_(rounding),
        slices_(parameter.shapes_of_reduced()),
        wholes_(whole_shapes(mesh_, layout_.local, parameter.local_shapes)),
        given_(hypotheses(parameter, dump, rounding)),
        truth_(gathered(blocks_of(given_[0].prediction.tensors), divided_axes())) {
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) every_axis_.push_back(axis);
    squares_ = squares_of_all(dump);
  }

  void add_all() {
    for (const Hypothesis& each : given_)
      add(each.signature->id.c_str(), each.variant, updated(each.prediction.tensors));
    if (rule_.needs_whole()) add_slices();
    if (rule_.clip > 0) add_norms();
    add_replicas();
  }

 private:
  using Blocks = std::vector<Block>;

  Axes divided_axes() const {
    Axes axes;
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis)
      if (layout_.reduced[axis].kind == Kind::shard && layout_.reduced[axis].dimension >= 0) axes.push_back(axis);
    return axes;
  }
  Blocks blocks_of(const ByRank& gradients) const {
    Blocks blocks;
    for (size_t r = 0; r < gradients.size(); ++r) blocks.push_back({slices_[r], gradients[r]});
    return blocks;
  }

  // Slices become whole over these axes: over the last first, which has divided last.
  Blocks gathered(const Blocks& slices, const Axes& axes) const {
    std::vector<LazyBlock> wholes;
    for (const Block& each : slices) wholes.push_back(unread(each));
    for (size_t i = axes.size(); i-- > 0;) {
      const std::vector<LazyBlock> before = wholes;
      for (int r = 0; r < mesh_.ranks(); ++r) {
        std::vector<LazyBlock> parts;
        for (const int q : mesh_.along(axes[i], r)) parts.push_back(before[static_cast<size_t>(q)]);
        wholes[static_cast<size_t>(r)] = joined(parts, layout_.reduced[axes[i]].dimension);
      }
    }
    Blocks result;
    for (size_t r = 0; r < wholes.size(); ++r)
      result.push_back({axes == divided_axes() ? wholes_[r] : wholes[r].shape, values_of(wholes[r])});
    return result;
  }
  // And slices again.
  Blocks divided(Blocks wholes, const Axes& axes) const {
    const std::vector<Placement> own(mesh_.axes.size(), {Kind::shard});
    Layout layout{own, own, {}, {}};
    for (const size_t axis : axes) layout.local[axis] = {}, layout.reduced[axis] = layout_.reduced[axis];
    return Reduction(mesh_, layout, slices_)(std::move(wholes), {.skipped = every_axis_});
  }
  bool are_whole() const { return parameter_.update->is_whole(wholes_); }
  Blocks as_dumped(Blocks wholes) const { return are_whole() ? wholes : divided(std::move(wholes), divided_axes()); }

  // By the norm of all gradients that goes with the gradient of one of them: others are wrong as much.
  double clipping(const Block& gradient, size_t rank) const {
    const double right = truth_[rank].values.norm();
    return right == 0 ? 1 : clipping(std::sqrt(squares_) * gradient.values.norm() / right);
  }
  double clipping(double norm) const { return rule_.clip == 0 || norm <= rule_.clip ? 1 : rule_.clip / norm; }

  Block step(const Block& gradient, double factor) const {
    const int64_t rows = rule_.needs_whole() ? gradient.shape[0] : 1;
    const Matrix table = factor * gradient.values.reshaped<Eigen::RowMajor>(rows, gradient.values.size() / rows);
    return {gradient.shape, update(rule_, table, rounding_).reshaped<Eigen::RowMajor>(1, table.size())};
  }
  // Ranks that have the same make the same of it.
  Blocks steps(const Blocks& gradients, const std::function<double(size_t)>& factor) const {
    Blocks result;
    for (size_t r = 0; r < gradients.size(); ++r) {
      const bool as_first = r > 0 && gradients[r].values == gradients[0].values && factor(r) == factor(0);
      result.push_back(as_first ? result[0] : step(gradients[r], factor(r)));
    }
    return result;
  }
  Blocks updated(const ByRank& gradients) const {
    const Blocks wholes = gathered(blocks_of(gradients), divided_axes());
    return as_dumped(steps(wholes, [&](size_t r) { return clipping(wholes[r], r); }));
  }
  Blocks right() const { return updated(given_[0].prediction.tensors); }

  // What the rule makes of slices alone.
  void add_slices() {
    const Axes axes = divided_axes();
    for (const size_t axis : axes) {
      if (layout_.reduced[axis].flat) continue;
      Axes others;
      std::ranges::copy_if(axes, std::back_inserter(others), [=](size_t each) { return each != axis; });
      add_slices(mesh_.axes[axis].name.empty() ? "" : "over " + mesh_.axes[axis].name, others);
    }
    if (axes.size() > 1 && !layout_.reduced[axes[0]].flat) add_slices("over every axis", {});
  }
  void add_slices(const std::string& variant, const Axes& whole_over) {
    const Blocks parts = gathered(blocks_of(given_[0].prediction.tensors), whole_over);
    Blocks slices = divided(steps(parts, [&](size_t r) { return clipping(truth_[r], r); }), whole_over);
    add("S37", variant, are_whole() ? gathered(slices, divided_axes()) : std::move(slices));
  }

  void add_norms() {
    const auto with = [&](const char* variant, const std::function<double(size_t)>& norm) {
      add("S38", variant, as_dumped(steps(truth_, [&](size_t r) { return clipping(norm(r)); })));
    };
    with("not clipped", [](size_t) { return 0; });
    with("by the norm of this parameter alone", [&](size_t r) { return truth_[r].values.norm(); });
    with("by the norm of each rank's gradient before the reduction",
         [&](size_t r) { return std::sqrt(squares_before_[r]); });
    if (!divided_axes().empty())
      with("by the norm of each rank's slices", [&](size_t r) { return std::sqrt(squares_of_slices_[r]); });
  }

  // Ranks that do not take the update, or only their own slice of it.
  void add_replicas() {
    const auto ranks = static_cast<size_t>(mesh_.ranks());
    const auto without = [&](const std::string& variant, const std::function<bool(size_t)>& keeps) {
      Blocks blocks = right();
      for (size_t r = 0; r < ranks; ++r)
        if (keeps(r)) blocks[r].values.setZero();
      add("S26", variant, std::move(blocks), keeps);
    };
    for (size_t rank = 0; rank < ranks && ranks > 1; ++rank) {
      const std::string name = "rank " + std::to_string(rank);
      without(name + " alone takes the update", [=](size_t r) { return r != rank; });
      without(name + " does not take the update", [=](size_t r) { return r == rank; });
    }
    if (!are_whole() || divided_axes().empty()) return;
    const Blocks slices = divided(right(), divided_axes());
    const auto with_slices = [&](const std::string& variant, const std::function<bool(size_t of, size_t on)>& has) {
      Blocks result;
      for (size_t r = 0; r < ranks; ++r) {
        Blocks there = slices;
        for (size_t q = 0; q < ranks; ++q)
          if (!has(q, r)) there[q].values.setZero();
        result.push_back(gathered(there, divided_axes())[r]);
      }
      add("S26", variant, std::move(result));
    };
    with_slices("each rank updates its own slice only", [](size_t of, size_t on) { return of == on; });
    for (size_t rank = 0; rank < ranks; ++rank)
      with_slices("the slice of rank " + std::to_string(rank) + " is updated nowhere else",
                  [=](size_t of, size_t on) { return of != rank || on == rank; });
  }

  double squares_of_all(const Dump& dump) {
    const auto ranks = static_cast<size_t>(mesh_.ranks());
    squares_before_.assign(ranks, 0), squares_of_slices_.assign(ranks, 0);
    double sum = 0;
    for (const ParameterEvidence& each : dump.parameters) {
      ByRank sums;
      for (const ByRank& of_rank : each.local) sums.push_back(sum_of(of_rank));
      const Layout layout = layout_of(each, dump);
      const ByRank right = each.through(Reduction(mesh_, layout, each.shapes_of_reduced()), sums);
      sum += squares_of(right, layout, mesh_);
      for (size_t r = 0; r < ranks; ++r) {
        squares_before_[r] += sums[r].squaredNorm();
        squares_of_slices_[r] += right[r].squaredNorm();
      }
    }
    return sum;
  }

  // A parameter that was rounded with its update in it is off by more than the update's rounding.
  void add(
      const char* id, const std::string& variant, Blocks updates,
      const std::function<bool(size_t)>& keeps = [](size_t) { return false; }) {
    Hypothesis& added = all.emplace_back(Hypothesis{&signature(id), variant, {}});
    for (size_t r = 0; r < updates.size(); ++r) {
      Matrix& values = updates[r].values;
      rounding_.apply(values);
      if (!parameter_.update->weight.empty() && !keeps(r)) {
        const Matrix& before = parameter_.update->weight[r];
        Matrix after = before + values - rule_.rate * rule_.weight_decay * before;
        rounding_.apply(after);
        values = after - before;
      }
      added.prediction.tensors.push_back(std::move(values));
    }
  }

  const ParameterEvidence& parameter_;
  const OptimizerRule& rule_;
  const Mesh mesh_;
  const Layout layout_;
  const Rounding& rounding_;
  const std::vector<Shape> slices_, wholes_;
  const std::vector<Hypothesis> given_;  // what the reducer may have made
  const Blocks truth_;                   // whole
  Axes every_axis_;
  double squares_ = 0;                                      // of all gradients
  std::vector<double> squares_before_, squares_of_slices_;  // of those of each rank
};

}  // namespace

Observed observed_update(const ParameterEvidence& parameter) {
  Observed result;
  for (size_t r = 0; r < parameter.update->made.size(); ++r) {
    const Shape& shape = parameter.update->shapes[r];
    const Matrix& made = parameter.update->made[r];
    result.add("update of " + parameter.name + " on rank " + std::to_string(r), made,
               shape.rank() < 2 || shape[0] == 0 ? made.size() : made.size() / shape[0]);
  }
  return result;
}

std::vector<Hypothesis> update_hypotheses(const ParameterEvidence& parameter, const Dump& dump,
                                          const Rounding& rounding) {
  UpdateModel model(parameter, dump, rounding);
  model.add_all();
  return std::move(model.all);
}

}  // namespace weft::verify
