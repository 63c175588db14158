// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/generate.h"

#include <algorithm>

#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

const Features& all_features() {
  static const Features all = {"constants", "registry", "conversions", "share",   "custom",
                               "groups",    "halves",   "checkpoints", "training"};
  return all;
}

namespace {

// How often a feature is drawn, and the feature that must be on.
struct Weight {
  Feature feature;
  int weight;
  const char* needs;
};
constexpr Weight weights[] = {{Feature::constant, 3, "constants"},     {Feature::local, 12, ""},
                              {Feature::registry, 8, "registry"},      {Feature::collective, 8, ""},
                              {Feature::conversion, 8, "conversions"}, {Feature::share, 1, "share"},
                              {Feature::custom, 2, "custom"},          {Feature::training, 1, "training"}};

class Generator {
 public:
  Generator(uint64_t seed, const Features& only) : dice_(seed), features_(only.empty() ? all_features() : only) {
    program_.seed = seed;
  }

  Program generate() {
    constexpr int ranks[] = {1, 2, 2, 3, 3, 3, 4, 4, 5, 8};
    program_.ranks = ranks[dice_.below(std::size(ranks))];
    program_.declares_world = dice_.chance(0.8);
    if (has("training") && dice_.chance(0.25)) {
      program_.stage = dice_.below(4);
      program_.declares_world = false;
      silent_ = dice_.chance(0.3);
    }
    add_partitions();
    const int leaves = 1 + dice_.below(4), steps = 10 + dice_.below(31);
    while (static_cast<int>(program_.steps.size()) < leaves)
      add_step(program_.stage >= 0 && (silent_ || dice_.chance(0.5)) ? Feature::training : Feature::leaf);
    while (static_cast<int>(program_.steps.size()) < steps) add_step(random_feature());
    if (has("checkpoints") && dice_.chance(0.5)) add_pieces(leaves);
    add_terms();
    return fitting(std::move(program_));
  }

 private:
  bool has(const std::string& feature) const { return feature.empty() || features_.contains(feature); }
  // How often a feature is drawn. A silent program has a loss of parameters alone and no collective.
  int weight_of(const Weight& w) const {
    const bool on = has(w.needs) && (w.feature != Feature::training || program_.stage >= 0);
    return on && (!silent_ || w.feature == Feature::local) ? w.weight : 0;
  }

  void add_partition(const std::string& name, const std::function<int(int)>& color) {
    Partition partition{name, {}, dice_.chance(0.2)};
    for (int r = 0; r < program_.ranks; ++r) partition.color.push_back(color(r));
    program_.partitions.push_back(std::move(partition));
  }
  void add_partitions() {
    const int n = program_.ranks;
    add_partition("world", [](int) { return 0; });
    program_.partitions[0].reversed = false;
    if (!has("groups") || dice_.chance(0.3)) return;
    const int count = 1 + dice_.below(4), width = n % 2 == 0 ? 2 : 3, cut = 1 + dice_.below(std::max(n - 1, 1));
    for (int i = 0; i < count; ++i) switch (dice_.below(7)) {
        case 0: add_partition("rows", [&](int r) { return r / width; }); break;
        case 1: add_partition("columns", [&](int r) { return r % width; }); break;
        case 2: add_partition("halves", [&](int r) { return 2 * r / n; }); break;
        case 3: add_partition("beginning", [&](int r) { return r < cut ? 0 : r; }); break;
        case 4: add_partition("end", [&](int r) { return r >= n - cut - 1 ? n : r; }); break;
        case 5: add_partition("again", [](int) { return 0; }); break;
        case 6: add_partition("parts", [&](int r) { return r < cut; }); break;
      }
  }

  Feature random_feature() {
    int total = 0;
    for (const Weight& w : weights) total += weight_of(w);
    int at = dice_.below(total);
    for (const Weight& w : weights)
      if ((at -= weight_of(w)) < 0) return w.feature;
    return Feature::local;
  }

  int recent_value() {
    const auto count = static_cast<int>(program_.steps.size());
    const int back = dice_.chance(0.7) ? dice_.below(std::min(count, 4)) : dice_.below(count);
    return count - 1 - back;
  }

  void add_step(Feature feature) {
    const std::vector<int>& kinds = kinds_of(feature);
    Step step{.kind = kinds[static_cast<size_t>(dice_.below(static_cast<int>(kinds.size())))]};
    const StepKind& kind = step_kinds()[static_cast<size_t>(step.kind)];
    if (kind.inputs > 0 && program_.steps.empty()) return;
    for (int i = 0; i < kind.inputs; ++i) step.inputs.push_back(recent_value());
    step.group = dice_.chance(0.4) ? 0 : dice_.below(static_cast<int>(program_.partitions.size()));
    step.dice = static_cast<uint32_t>(dice_.bits());
    step.halves = kind.start && has("halves") && dice_.chance(0.25);
    program_.steps.push_back(std::move(step));
    if (lay_out(program_).misfit >= 0) program_.steps.pop_back();
  }

  static const std::vector<int>& kinds_of(Feature feature) {
    static const std::vector<std::vector<int>> all = [] {
      std::vector<std::vector<int>> kinds(std::size(feature_names));
      for (size_t i = 0; i < step_kinds().size(); ++i)
        kinds[static_cast<size_t>(step_kinds()[i].feature)].push_back(static_cast<int>(i));
      return kinds;
    }();
    return all[static_cast<size_t>(feature)];
  }

  void add_pieces(int first) {
    const auto count = static_cast<int>(program_.steps.size());
    int piece = 0;
    for (int at = first + dice_.below(4); at < count; at += 1 + dice_.below(6)) {
      const int last = std::min(count, at + 1 + dice_.below(5));
      for (++piece; at < last; ++at) program_.steps[static_cast<size_t>(at)].piece = piece;
    }
  }

  // Most values that no step uses, and some others.
  void add_terms() {
    std::vector<bool> used(program_.steps.size());
    for (const Step& step : program_.steps)
      for (const int input : step.inputs) used[static_cast<size_t>(input)] = true;
    for (size_t i = 0; i < used.size(); ++i)
      if (dice_.chance(used[i] ? 0.05 : 0.7)) add_term(static_cast<int>(i));
    if (program_.terms.empty()) add_term(static_cast<int>(used.size()) - 1);
  }
  void add_term(int value) {
    program_.terms.push_back({value, silent_ ? Weights::equal : static_cast<Weights>(dice_.below(3))});
  }

  Program program_;
  Dice dice_;
  bool silent_ = false;
  const Features features_;
};

}  // namespace

Program random_program(uint64_t seed, const Features& only) { return Generator(seed, only).generate(); }

}  // namespace weft::random_programs
