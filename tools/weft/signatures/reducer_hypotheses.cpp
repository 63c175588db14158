// SPDX-License-Identifier: Apache-2.0
// What each mistake of a reducer makes of the gradient of a parameter.
#include <algorithm>
#include <cmath>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

using Kind = Placement::Kind;
using ByRank = std::vector<Matrix>;
using Terms = std::vector<ByRank>;  // by micro-batch and rank

Terms terms_of(const std::vector<ByRank>& by_rank, const Rounding& rounding) {
  Terms terms(by_rank[0].size(), ByRank(by_rank.size()));
  for (size_t r = 0; r < by_rank.size(); ++r)
    for (size_t k = 0; k < terms.size(); ++k) {
      terms[k][r] = by_rank[r][k];
      rounding.apply(terms[k][r]);
    }
  return terms;
}

ByRank sum_of(const std::vector<ByRank>& all) {
  ByRank sum = all[0];
  for (size_t i = 1; i < all.size(); ++i)
    for (size_t r = 0; r < sum.size(); ++r) sum[r] += all[i][r];
  return sum;
}

ByRank times(double factor, ByRank all) {
  for (Matrix& m : all) m *= factor;
  return all;
}

// What could be missing of so many: every set but none and all; of more than eight only sets of one.
std::vector<std::vector<size_t>> missing_of(size_t count) {
  constexpr size_t most_of_which_all = 8;
  std::vector<std::vector<size_t>> sets;
  if (count > most_of_which_all)
    for (size_t i = 0; i < count; ++i) sets.push_back({i});
  else
    for (size_t bits = 1; bits + 1 < size_t{1} << count; ++bits) {
      sets.emplace_back();
      for (size_t i = 0; i < count; ++i)
        if (bits >> i & 1) sets.back().push_back(i);
    }
  return sets;
}

template <class Name> std::string listed(const std::vector<size_t>& set, Name name) {
  std::string names;
  for (const size_t i : set) names += (names.empty() ? "" : ", ") + name(i);
  return names;
}

class ReducerModel {
 public:
  std::vector<Hypothesis> all = {};

  ReducerModel(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding)
      : parameter_(parameter),
        mesh_(mesh_of(dump)),
        layout_(layout_of(parameter, dump)),
        reduction_(mesh_, layout_, parameter.shapes_of_reduced()) {
    for (const auto& [name, by_rank] : parameter.uses) uses_.emplace_back(name, terms_of(by_rank, rounding));
    if (uses_.empty()) {
      passes_ = terms_of(parameter.local, rounding);
    } else {
      for (size_t k = 0; k < uses_[0].second.size(); ++k) {
        std::vector<ByRank> of_uses;
        for (const auto& [name, terms] : uses_) of_uses.push_back(terms[k]);
        passes_.push_back(sum_of(of_uses));
      }
    }
    whole_ = sum_of(passes_);
    truth_ = reduced(whole_);
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      if (mesh_.axes[axis].size == 1) continue;
      (layout_.local[axis].data ? data_axes_ : model_axes_).push_back(axis);
    }
  }

  void add_factors(const std::vector<int64_t>& rows) {
    add("S0", "", truth_);
    if (divides_samples()) {
      add("S8", "", times(samples_over(), truth_));
      add("S9", "", times(1 / samples_over(), truth_));
    }
    for (const size_t axis : each_of_several(data_axes_)) {
      add("S8", over(axis), times(size(axis), truth_));
      add("S9", over(axis), times(1 / size(axis), truth_));
    }
    for (const size_t axis : model_axes_) {
      add("S30", "multiplied by the size of " + mesh_.axes[axis].name, times(size(axis), truth_));
      add("S30", "divided by the size of " + mesh_.axes[axis].name, times(1 / size(axis), truth_));
    }
    const double elements = static_cast<double>(std::max<Eigen::Index>(parameter_.local[0][0].size(), 1));
    add("S33", "by the number of elements", times(1 / elements, truth_));
    double samples = 0;
    for (const int64_t each : rows) samples += static_cast<double>(each);
    if (samples == 0) return;
    add("S33", "by the number of samples", times(1 / samples, truth_));
    add("S33", "multiplied by the number of samples", times(samples, truth_));
  }

  void add_accumulation() {
    const double passes = static_cast<double>(passes_.size());
    if (passes < 2) return;
    std::vector<ByRank> geometric;
    for (size_t k = 0; k < passes_.size(); ++k)
      geometric.push_back(times(std::pow(samples_over(), passes - 1 - static_cast<double>(k)), passes_[k]));
    add("S14", "", reduced(sum_of(geometric)));
    add("S15", "", reduced(passes_.back()));
    add("S16", "multiplied by A", times(passes, truth_));
    add("S16", "divided by A once more", times(1 / passes, truth_));
    add("S16", "a window of A - 1", times((passes - 1) / passes, truth_));
    for (size_t last = 0; last + 1 < passes_.size(); ++last) add_early_reduction(last);
  }

  // What was never put together: over all axes that divide samples, over one of them, or over one that divides the
  // model, where the terms of all ranks belong to every copy.
  void add_axes_left_out() {
    if (divides_samples()) add("S22", "", reduced(whole_, {.skipped = data_axes_}));
    for (const size_t axis : each_of_several(data_axes_)) add("S22", over(axis), reduced(whole_, {.skipped = {axis}}));
    for (const size_t axis : model_axes_)
      if (layout_.local[axis].pending() || copies_differ(axis))
        add("S29", over(axis), reduced(whole_, {.skipped = {axis}}));
  }

  // What becomes of it if the job takes the group of another axis, along which ranks have slices or tensors of their
  // own, for that of the axis along which it acts.
  void add_wrong_axes() {
    for (size_t right = 0; right < mesh_.axes.size(); ++right)
      for (size_t wrong = 0; wrong < mesh_.axes.size(); ++wrong)
        if (acts(right) && !acts(wrong) && layout_.local[wrong].kind == Kind::shard) add_wrong_axis(right, wrong);
  }

  void add_lost_uses() {
    for (const std::vector<size_t>& lost : missing_of(uses_.size())) {
      std::vector<ByRank> rest;
      for (size_t i = 0; i < uses_.size(); ++i)
        if (std::ranges::find(lost, i) == lost.end()) rest.push_back(sum_of(uses_[i].second));
      add("S32", "without " + listed(lost, [&](size_t i) { return uses_[i].first; }), reduced(sum_of(rest)));
    }
  }

  void add_missing_ranks() {
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      if (!layout_.local[axis].pending()) continue;
      const std::string of_axis = mesh_.axes[axis].name.empty() ? "" : " of " + mesh_.axes[axis].name;
      for (const std::vector<size_t>& missing : missing_of(static_cast<size_t>(mesh_.axes[axis].size)))
        add("S24", "without rank " + listed(missing, [](size_t i) { return std::to_string(i); }) + of_axis,
            reduced(whole_, {.axis = axis, .missing = missing}));
    }
  }

  void add_others() {
    add("S18", "", times(0, truth_));
    if (!parameter_.previous.empty()) add("S23", "", parameter_.previous);
  }

 private:
  double size(size_t axis) const { return mesh_.axes[axis].size; }
  std::string over(size_t axis) const { return "over " + mesh_.axes[axis].name; }
  static std::vector<size_t> each_of_several(const std::vector<size_t>& axes) {
    return axes.size() > 1 ? axes : std::vector<size_t>();
  }
  bool divides_samples() const { return !data_axes_.empty() || model_axes_.empty(); }
  double samples_over() const {
    double ranks = 1;
    for (const size_t axis : data_axes_) ranks *= size(axis);
    return ranks;
  }

  ByRank reduced(const ByRank& of_ranks, const Reduction::Lapse& lapse = {}) const {
    return parameter_.through(reduction_, of_ranks, lapse);
  }

  bool acts(size_t axis) const {
    return mesh_.axes[axis].size > 1 && (layout_.local[axis].pending() || layout_.local[axis] != layout_.reduced[axis]);
  }
  void add_wrong_axis(size_t right, size_t wrong) {
    Layout layout = layout_;
    layout.local[wrong] = layout_.local[right], layout.reduced[wrong] = layout_.reduced[right];
    layout.local[right] = layout.reduced[right] = {Kind::shard};
    const Reduction::Lapse lapse{.skipped =
                                     layout_.local[right].pending() ? std::vector<size_t>() : std::vector{wrong}};
    try {
      add("S34", over(wrong) + " instead of " + mesh_.axes[right].name,
          parameter_.through(Reduction(mesh_, layout, parameter_.shapes_of_reduced()), whole_, lapse));
    } catch (const Error&) {  // slices do not fit, so this would not have gone unnoticed
    }
  }

  void add(const char* id, std::string variant, ByRank of_ranks) {
    all.push_back({&signature(id), std::move(variant), {std::move(of_ranks)}});
  }

  // Micro-batches up to `last` are reduced, later ones stay local.
  void add_early_reduction(size_t last) {
    const std::vector<ByRank> early(passes_.begin(), passes_.begin() + static_cast<int64_t>(last) + 1),
        late(passes_.begin() + static_cast<int64_t>(last) + 1, passes_.end());
    add("S17", "after micro-batch " + std::to_string(last),
        sum_of({reduced(sum_of(early)), reduced(sum_of(late), {.skipped = data_axes_})}));
  }

  // Whether ranks that should have the same do not, by more than the rounding of long sums.
  bool copies_differ(size_t axis) const {
    if (layout_.local[axis].kind != Kind::replicate) return false;
    constexpr double rounding_of_copies = 256;
    for (int r = 0; r < mesh_.ranks(); ++r)
      for (size_t k = 0; k < passes_.size(); ++k) {
        const Matrix &mine = parameter_.local[static_cast<size_t>(r)][k],
                     &first = parameter_.local[static_cast<size_t>(mesh_.along(axis, r)[0])][k];
        if ((mine - first).norm() > rounding_of_copies * parameter_.precision.epsilon * first.norm()) return true;
      }
    return false;
  }

  const ParameterEvidence& parameter_;
  const Mesh mesh_;
  const Layout layout_;
  const Reduction reduction_;
  std::vector<std::pair<std::string, Terms>> uses_;
  Terms passes_;
  ByRank whole_, truth_;                        // of all micro-batches, before and after
  std::vector<size_t> data_axes_, model_axes_;  // that have more than one rank
};

}  // namespace

Observed observed(const ParameterEvidence& parameter) {
  Observed result;
  const std::vector<Shape> shapes = parameter.shapes_of_reduced();
  for (size_t r = 0; r < shapes.size(); ++r) {
    const Matrix& flat = parameter.reduced[r];
    const bool vector = shapes[r].rank() < 2 || shapes[r][0] == 0;
    result.add(parameter.name + " on rank " + std::to_string(r), flat,
               vector ? flat.size() : flat.size() / shapes[r][0]);
  }
  return result;
}

std::vector<Hypothesis> hypotheses(const ParameterEvidence& parameter, const Dump& dump, const Rounding& rounding) {
  ReducerModel model(parameter, dump, rounding);
  model.add_factors(dump.rows);
  model.add_accumulation();
  model.add_others();
  model.add_axes_left_out();
  model.add_wrong_axes();
  model.add_lost_uses();
  model.add_missing_ranks();
  return std::move(model.all);
}

}  // namespace weft::verify
