// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/generate.h"

#include <algorithm>

#include "tests/random_programs/step_kinds.h"

namespace weft::random_programs {

const Features& all_features() {
  static const Features all = {"constants", "registry", "conversions", "share",
                               "custom",    "groups",   "halves",      "checkpoints"};
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
                              {Feature::custom, 2, "custom"}};

class Generator {
 public:
  Generator(uint64_t seed, const Features& only) : dice_(seed), features_(only.empty() ? all_features() : only) {
    program_.seed = seed;
  }

  Program generate() {
    constexpr int ranks[] = {1, 2, 2, 3, 3, 3, 4, 4, 5, 8};
    program_.ranks = ranks[dice_.below(std::size(ranks))];
    program_.declares_world = dice_.chance(0.8);
    add_partitions();
    const int leaves = 1 + dice_.below(4), steps = 10 + dice_.below(31);
    for (int i = 0; i < leaves; ++i) add_step(Feature::leaf);
    while (static_cast<int>(program_.steps.size()) < steps) add_step(random_feature());
    if (has("checkpoints") && dice_.chance(0.5)) add_pieces(leaves);
    const int terms = 1 + dice_.below(3);
    for (int i = 0; i < terms; ++i) program_.terms.push_back({recent_value(), dice_.chance(0.5)});
    return fitting(std::move(program_));
  }

 private:
  bool has(const std::string& feature) const { return feature.empty() || features_.contains(feature); }

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
    for (const Weight& w : weights) total += has(w.needs) ? w.weight : 0;
    int at = dice_.below(total);
    for (const Weight& w : weights)
      if (has(w.needs) && (at -= w.weight) < 0) return w.feature;
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

  Program program_;
  Dice dice_;
  const Features features_;
};

}  // namespace

Program random_program(uint64_t seed, const Features& only) { return Generator(seed, only).generate(); }

}  // namespace weft::random_programs
