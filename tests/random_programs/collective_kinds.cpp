// SPDX-License-Identifier: Apache-2.0
// Every collective of collectives.h, and custom ones. Those that are linear also run in two halves.
#include <numeric>

#include "tests/random_programs/group_layouts.h"
#include "tests/random_programs/values.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

namespace {

using namespace layouts;
using Run = std::function<Var(const Call&)>;

StepKind whole(const char* name, Of lay_out, Run run, const char* text, int inputs = 1) {
  return {.name = name,
          .feature = Feature::collective,
          .inputs = inputs,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text};
}
// `verb` makes the collective of verbs.h from a call.
template <class Verb>
StepKind linear(const char* name, Of lay_out, Run run, const char* text, Verb verb, const char* verb_text) {
  StepKind kind = whole(name, std::move(lay_out), std::move(run), text);
  kind.start = [verb](const Call& c) { return start(verb(c), c.x[0], c.group); };
  kind.verb_text = verb_text;
  return kind;
}

std::vector<StepKind> sums() {
  const auto reduced = [](ReduceOp op) { return [op](const Call& c) { return all_reduce(c.x[0], c.group, op); }; };
  return {
      linear(
          "all_reduce", summed_over_group, reduced(ReduceOp::sum), "all_reduce({0}, {group})",
          [](const Call&) { return AllReduce{}; }, "AllReduce{}"),
      linear(
          "all_reduce mean", equal, reduced(ReduceOp::mean), "all_reduce({0}, {group}, ReduceOp::mean)",
          [](const Call&) { return AllReduce{ReduceOp::mean}; }, "AllReduce{ReduceOp::mean}"),
      whole("all_reduce maximum", equal, reduced(ReduceOp::maximum), "all_reduce({0}, {group}, ReduceOp::maximum)"),
      whole("all_reduce minimum", equal, reduced(ReduceOp::minimum), "all_reduce({0}, {group}, ReduceOp::minimum)"),
      whole("all_reduce product", multiplied_over_group, reduced(ReduceOp::product),
            "all_reduce({0}, {group}, ReduceOp::product)"),
      linear(
          "reduce_scatter", evenly_divided, [](const Call& c) { return reduce_scatter(c.x[0], c.group); },
          "reduce_scatter({0}, {group})", [](const Call&) { return ReduceScatter{}; }, "ReduceScatter{}"),
      linear(
          "reduce_scatter_v", divided_in_group,
          [](const Call& c) { return reduce_scatter_v(c.x[0], c.split(), c.group); },
          "reduce_scatter_v({0}, {split}, {group})", [](const Call& c) { return ReduceScatter{c.split()}; },
          "ReduceScatter{{split}}"),
      linear(
          "reduce_scatter mean", evenly_divided,
          [](const Call& c) { return reduce_scatter(c.x[0], c.group, ReduceOp::mean); },
          "reduce_scatter({0}, {group}, ReduceOp::mean)",
          [](const Call&) {
            return ReduceScatter{{}, ReduceOp::mean};
          },
          "ReduceScatter{{}, ReduceOp::mean}"),
      linear(
          "reduce", summed_over_group, [](const Call& c) { return reduce(c.x[0], c.root(), c.group); },
          "reduce({0}, {root}, {group})", [](const Call& c) { return Reduce{c.root()}; }, "Reduce{{root}}"),
      linear(
          "reduce mean", equal, [](const Call& c) { return reduce(c.x[0], c.root(), c.group, ReduceOp::mean); },
          "reduce({0}, {root}, {group}, ReduceOp::mean)",
          [](const Call& c) {
            return Reduce{c.root(), ReduceOp::mean};
          },
          "Reduce{{root}, ReduceOp::mean}"),
      linear(
          "scan", summed_over_group, [](const Call& c) { return scan(c.x[0], c.group); }, "scan({0}, {group})",
          [](const Call&) { return Scan{}; }, "Scan{}"),
      whole(
          "scan mean", equal, [](const Call& c) { return scan(c.x[0], c.group, ReduceOp::mean); },
          "scan({0}, {group}, ReduceOp::mean)"),
      whole(
          "scan maximum", equal, [](const Call& c) { return scan(c.x[0], c.group, ReduceOp::maximum); },
          "scan({0}, {group}, ReduceOp::maximum)"),
      whole(
          "scan product", multiplied_over_group, [](const Call& c) { return scan(c.x[0], c.group, ReduceOp::product); },
          "scan({0}, {group}, ReduceOp::product)"),
      linear(
          "exscan", summed_over_group, [](const Call& c) { return exscan(c.x[0], c.group); }, "exscan({0}, {group})",
          [](const Call&) { return Exscan{}; }, "Exscan{}"),
  };
}

std::vector<StepKind> moves() {
  return {
      linear(
          "all_gather", gathered_evenly, [](const Call& c) { return all_gather(c.x[0], c.group); },
          "all_gather({0}, {group})", [](const Call&) { return AllGather{}; }, "AllGather{}"),
      linear(
          "all_gather_v", gathered, [](const Call& c) { return all_gather_v(c.x[0], c.rows(), c.group); },
          "all_gather_v({0}, {rows}, {group})", [](const Call& c) { return AllGather{c.rows()}; }, "AllGather{{rows}}"),
      linear(
          "gather", gathered_evenly_on_root, [](const Call& c) { return gather(c.x[0], c.root(), c.group); },
          "gather({0}, {root}, {group})", [](const Call& c) { return Gather{c.root()}; }, "Gather{{root}}"),
      linear(
          "gather_v", gathered_on_root, [](const Call& c) { return gather_v(c.x[0], c.rows(), c.root(), c.group); },
          "gather_v({0}, {rows}, {root}, {group})",
          [](const Call& c) {
            return Gather{c.root(), c.rows()};
          },
          "Gather{{root}, {rows}}"),
      linear(
          "scatter", evenly_divided, [](const Call& c) { return scatter(c.x[0], c.root(), c.group); },
          "scatter({0}, {root}, {group})", [](const Call& c) { return Scatter{c.root()}; }, "Scatter{{root}}"),
      linear(
          "scatter_v", divided_in_group, [](const Call& c) { return scatter_v(c.x[0], c.split(), c.root(), c.group); },
          "scatter_v({0}, {split}, {root}, {group})",
          [](const Call& c) {
            return Scatter{c.root(), c.split()};
          },
          "Scatter{{root}, {split}}"),
      linear(
          "broadcast", equal, [](const Call& c) { return broadcast(c.x[0], c.root(), c.group); },
          "broadcast({0}, {root}, {group})", [](const Call& c) { return Broadcast{c.root()}; }, "Broadcast{{root}}"),
      linear(
          "all_to_all", exchanged_evenly, [](const Call& c) { return all_to_all(c.x[0], c.group); },
          "all_to_all({0}, {group})", [](const Call&) { return AllToAll{}; }, "AllToAll{}"),
      linear(
          "all_to_all_v", exchanged, [](const Call& c) { return all_to_all_v(c.x[0], c.counts(), c.group); },
          "all_to_all_v({0}, random_counts({rows}, {dice}), {group})",
          [](const Call& c) { return AllToAll{c.counts()}; }, "AllToAll{random_counts({rows}, {dice})}"),
      linear(
          "permute", equal, [](const Call& c) { return permute(c.x[0], c.sources(), c.group); },
          "permute({0}, random_sources({group}.size(), {dice}), {group})",
          [](const Call& c) { return Permute{c.sources()}; }, "Permute{random_sources({group}.size(), {dice})}"),
      whole(
          "shift", equal, [](const Call& c) { return shift(c.x[0], 1, c.group); }, "shift({0}, 1, {group})"),
      whole(
          "send and receive", around_a_ring, [](const Call& c) { return sent_around(c.x[0], c.group); },
          "sent_around({0}, {group})"),
  };
}

std::vector<StepKind> composed() {
  const auto weighted = [](const Call& c) { return weighted_mean(c.x[0], 1.5 + sin(sum(c.x[1])), c.group); };
  return {whole("weighted_mean", equal, weighted, "weighted_mean({0}, 1.5 + sin(sum({1})), {group})", 2),
          whole(
              "all_reduce_norm", summed_over_group, [](const Call& c) { return all_reduce_norm(c.x[0], c.group); },
              "all_reduce_norm({0}, {group})"),
          whole(
              "all_reduce_log_sum_exp",
              [](const Situation& s) {
                std::optional<Layout> layout = equal(s);
                layout->bound += 3;
                return layout;
              },
              [](const Call& c) { return all_reduce_log_sum_exp(c.x[0], c.group); },
              "all_reduce_log_sum_exp({0}, {group})")};
}

}  // namespace

std::vector<StepKind> collective_kinds() {
  std::vector<StepKind> kinds = sums();
  for (const auto& more : {moves(), composed()}) kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

std::vector<StepKind> custom_kinds() {
  const auto portions = [](const Call& c) { return RandomPortions::draw(c.rows(), c.step.dice); };
  const auto reads = [](const Call& c) { return RandomReads{c.group.size(), c.step.dice}; };
  const auto run_it = [](auto verb) {
    return [verb](const Call& c) { return run_linear(verb(c), c.x[0], c.group, Site::here()); };
  };
  std::vector<StepKind> kinds = {linear("random portions", random_portions, run_it(portions),
                                        "run_linear(RandomPortions::draw({rows}, {dice}), {0}, {group}, Site::here())",
                                        portions, "RandomPortions::draw({rows}, {dice})"),
                                 linear("random reads", summed_over_group, run_it(reads),
                                        "run_linear(RandomReads{{group}.size(), {dice}}, {0}, {group}, Site::here())",
                                        reads, "RandomReads{{group}.size(), {dice}}")};
  for (StepKind& kind : kinds) kind.feature = Feature::custom;
  return kinds;
}

}  // namespace weft::random_programs
