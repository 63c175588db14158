// SPDX-License-Identifier: Apache-2.0
// What the norm of all gradients becomes if some parameters count more or less than once in it.
#include <algorithm>
#include <cmath>
#include <set>

#include "tools/weft/signatures/signatures.h"

namespace weft::verify {
namespace {

using Kind = Placement::Kind;

// The squares of one parameter.
struct Squares {
  Layout layout;
  std::string class_name;
  std::vector<double> by_rank;
  double copies = 1;  // that equal ranks hold of each element

  double once() const {
    double sum = 0;
    for (const double each : by_rank) sum += each;
    return sum / copies;
  }
};

class NormModel {
 public:
  std::vector<Hypothesis> all = {};

  NormModel(const Dump& dump, const Rounding& rounding) : mesh_(mesh_of(dump)) {
    for (const ParameterEvidence& parameter : dump.parameters) {
      Squares squares{layout_of(parameter, dump), {}, {}};
      squares.class_name = class_of(squares.layout, mesh_);
      classes_.insert(squares.class_name);
      for (size_t axis = 0; axis < mesh_.axes.size(); ++axis)
        if (squares.layout.reduced[axis].kind == Kind::replicate) squares.copies *= mesh_.axes[axis].size;
      // The square of each number is off by twice the rounding of the number.
      for (const Powers& each : parameter.powers)
        squares.by_rank.push_back(each.squares + 2 * std::sqrt(each.fourth) * (rounding(1) - 1));
      for (Matrix gradient : parameter.reduced) {
        rounding.apply(gradient);
        squares.by_rank.push_back(gradient.squaredNorm());
      }
      parameters_.push_back(std::move(squares));
    }
  }

  void add_all() {
    add("S0", "", [](const Squares&) { return 1.0; });
    add("S31", "every rank's copy counts", [](const Squares& p) { return p.copies; });
    for (size_t axis = 0; axis < mesh_.axes.size(); ++axis) {
      const int size = mesh_.axes[axis].size;
      const auto replicated = [axis](const Squares& p) { return p.layout.reduced[axis].kind == Kind::replicate; };
      const std::string times = mesh_.over(axis) + ": counted " + std::to_string(size) + " times";
      add("S31", "replicated" + times, [&](const Squares& p) { return replicated(p) ? size : 1.0; });
      add("S31", "sharded" + times, [&](const Squares& p) { return replicated(p) ? 1.0 : size; });
      add_own_shards(axis, "sharded" + mesh_.over(axis) + ": only the own shard counts");
      add_first_shards(axis, "sharded" + mesh_.over(axis), [](const Squares&) { return true; });
      if (classes_.size() > 1)
        for (const std::string& name : classes_)
          add_first_shards(axis, "class " + name, [&](const Squares& p) { return p.class_name == name; });
    }
    for (const std::string& name : classes_) add_class(name);
  }

 private:
  void add_class(const std::string& name) {
    const auto with = [&](const std::string& what, double count) {
      add("S31", "class " + name + ": " + what, [&](const Squares& p) { return p.class_name == name ? count : 1.0; });
    };
    if (classes_.size() == 1) return;
    with("left out", 0);
    for (const Axis& axis : mesh_.axes) {
      with("counted " + std::to_string(axis.size) + " times", axis.size);
      with("1/" + std::to_string(axis.size) + " counts", 1.0 / axis.size);
    }
  }

  // Several descriptions may count every parameter the same number of times: the first is kept.
  template <class Count> void add(const char* id, const std::string& variant, Count count) {
    std::vector<double> counts;
    double sum = 0;
    for (const Squares& p : parameters_) {
      counts.push_back(count(p));
      sum += counts.back() * p.once();
    }
    if (seen_.insert(counts).second) add(id, variant, ByRank(static_cast<size_t>(mesh_.ranks()), sum));
  }

  bool sharded(const Squares& p, size_t axis) const {
    return p.layout.reduced[axis].kind == Kind::shard && mesh_.axes[axis].size > 1;
  }
  void add_own_shards(size_t axis, const std::string& variant) {
    add_where(
        variant, [&](const Squares& p) { return sharded(p, axis); },
        [&](int r, int q) { return mesh_.coordinate(axis, q) == mesh_.coordinate(axis, r); });
  }
  // As if the others were copies of it.
  template <class Of> void add_first_shards(size_t axis, const std::string& of, Of concerns) {
    add_where(
        of + ": only the first shard" + mesh_.over(axis) + " counts",
        [&](const Squares& p) { return sharded(p, axis) && concerns(p); },
        [&](int, int q) { return mesh_.coordinate(axis, q) == 0; });
  }

  // Of these parameters the squares of rank q count in the norm of rank r only where `counts` says so.
  template <class Of, class Counts> void add_where(const std::string& variant, Of concerns, Counts counts) {
    if (std::ranges::none_of(parameters_, concerns)) return;
    ByRank sums(static_cast<size_t>(mesh_.ranks()), 0);
    for (const Squares& p : parameters_)
      for (int r = 0; r < mesh_.ranks(); ++r)
        for (int q = 0; q < mesh_.ranks(); ++q)
          if (!concerns(p) || counts(r, q))
            sums[static_cast<size_t>(r)] += p.by_rank[static_cast<size_t>(q)] / p.copies;
    if (seen_.insert(sums).second) add("S31", variant, sums);
  }

  using ByRank = std::vector<double>;
  void add(const char* id, const std::string& variant, const ByRank& squares) {
    Hypothesis& added = all.emplace_back(Hypothesis{&signature(id), variant, {}});
    for (const double each : squares) added.prediction.tensors.push_back(Matrix::Constant(1, 1, std::sqrt(each)));
  }

  const Mesh mesh_;
  std::vector<Squares> parameters_;
  std::set<std::string> classes_;
  std::set<std::vector<double>> seen_;
};

}  // namespace

Observed observed(const NormEvidence& norm) {
  Observed result;
  for (size_t r = 0; r < norm.by_rank.size(); ++r)
    result.add("gradient_norm on rank " + std::to_string(r), Matrix::Constant(1, 1, norm.by_rank[r]));
  return result;
}

std::vector<Hypothesis> hypotheses(const NormEvidence&, const Dump& dump, const Rounding& rounding) {
  NormModel model(dump, rounding);
  model.add_all();
  return std::move(model.all);
}

}  // namespace weft::verify
