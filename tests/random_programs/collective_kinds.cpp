// SPDX-License-Identifier: Apache-2.0
// Every collective of collectives.h, and custom ones. Those that are linear also run in two halves.
#include "tests/random_programs/group_layouts.h"
#include "tests/random_programs/values.h"
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

namespace weft::random_programs {

namespace {

using namespace layouts;

StepKind whole(const char* name, Of lay_out, std::function<Var(const Call&)> run, const char* text, int inputs = 1) {
  return {.name = name,
          .feature = Feature::collective,
          .inputs = inputs,
          .lay_out = std::move(lay_out),
          .run = std::move(run),
          .text = text};
}
// With the collective of verbs.h that start() takes.
template <class MakeVerb>
StepKind linear(const char* name, Of lay_out, std::function<Var(const Call&)> run, const char* text, MakeVerb verb,
                const char* verb_text) {
  StepKind kind = whole(name, std::move(lay_out), std::move(run), text);
  kind.start = [verb](const Call& c) { return start(verb(c), c.x[0], c.group); };
  kind.verb_text = verb_text;
  return kind;
}

std::vector<StepKind> sums() {
  return {
      linear("all_reduce", summed_over_group, CODE(all_reduce(c.x[0], c.group)), CODE(AllReduce{})),
      linear("all_reduce mean", equal, CODE(all_reduce(c.x[0], c.group, ReduceOp::mean)),
             CODE(AllReduce{ReduceOp::mean})),
      whole("all_reduce maximum", equal, CODE(all_reduce(c.x[0], c.group, ReduceOp::maximum))),
      whole("all_reduce minimum", equal, CODE(all_reduce(c.x[0], c.group, ReduceOp::minimum))),
      whole("all_reduce product", multiplied_over_group, CODE(all_reduce(c.x[0], c.group, ReduceOp::product))),
      linear("reduce_scatter", evenly_divided, CODE(reduce_scatter(c.x[0], c.group)), CODE(ReduceScatter{})),
      linear("reduce_scatter_v", divided_in_group, CODE(reduce_scatter_v(c.x[0], c.split(), c.group)),
             CODE(ReduceScatter{c.split()})),
      linear("reduce_scatter mean", evenly_divided, CODE(reduce_scatter(c.x[0], c.group, ReduceOp::mean)),
             CODE(ReduceScatter{{}, ReduceOp::mean})),
      linear("reduce", summed_over_group, CODE(reduce(c.x[0], c.root(), c.group)), CODE(Reduce{c.root()})),
      linear("reduce mean", equal, CODE(reduce(c.x[0], c.root(), c.group, ReduceOp::mean)),
             CODE(Reduce{c.root(), ReduceOp::mean})),
      linear("scan", summed_over_group, CODE(scan(c.x[0], c.group)), CODE(Scan{})),
      whole("scan mean", equal, CODE(scan(c.x[0], c.group, ReduceOp::mean))),
      whole("scan maximum", equal, CODE(scan(c.x[0], c.group, ReduceOp::maximum))),
      whole("scan product", multiplied_over_group, CODE(scan(c.x[0], c.group, ReduceOp::product))),
      linear("exscan", summed_over_group, CODE(exscan(c.x[0], c.group)), CODE(Exscan{})),
  };
}

std::vector<StepKind> moves() {
  return {
      linear("all_gather", gathered_evenly, CODE(all_gather(c.x[0], c.group)), CODE(AllGather{})),
      linear("all_gather_v", gathered, CODE(all_gather_v(c.x[0], c.rows(), c.group)), CODE(AllGather{c.rows()})),
      linear("gather", gathered_evenly_on_root, CODE(gather(c.x[0], c.root(), c.group)), CODE(Gather{c.root()})),
      linear("gather_v", gathered_on_root, CODE(gather_v(c.x[0], c.rows(), c.root(), c.group)),
             CODE(Gather{c.root(), c.rows()})),
      linear("scatter", evenly_divided, CODE(scatter(c.x[0], c.root(), c.group)), CODE(Scatter{c.root()})),
      linear("scatter_v", divided_in_group, CODE(scatter_v(c.x[0], c.split(), c.root(), c.group)),
             CODE(Scatter{c.root(), c.split()})),
      linear("broadcast", equal, CODE(broadcast(c.x[0], c.root(), c.group)), CODE(Broadcast{c.root()})),
      linear("all_to_all", exchanged_evenly, CODE(all_to_all(c.x[0], c.group)), CODE(AllToAll{})),
      linear("all_to_all_v", exchanged, CODE(all_to_all_v(c.x[0], random_counts(c.rows(), c.dice()), c.group)),
             CODE(AllToAll{random_counts(c.rows(), c.dice())})),
      linear("permute", equal, CODE(permute(c.x[0], random_sources(c.group.size(), c.dice()), c.group)),
             CODE(Permute{random_sources(c.group.size(), c.dice())})),
      whole("shift", equal, CODE(shift(c.x[0], 1, c.group))),
      whole("send and receive", around_a_ring, CODE(sent_around(c.x[0], c.group))),
  };
}

std::optional<Layout> sum_of_exponentials(const Situation& s) {
  std::optional<Layout> layout = equal(s);
  layout->bound += 3;
  return layout;
}

std::vector<StepKind> composed() {
  return {
      whole("weighted_mean", equal, CODE(weighted_mean(c.x[0], 1.5 + sin(sum(c.x[1])), c.group)), 2),
      whole("all_reduce_norm", summed_over_group, CODE(all_reduce_norm(c.x[0], c.group))),
      whole("all_reduce_log_sum_exp", sum_of_exponentials, CODE(all_reduce_log_sum_exp(c.x[0], c.group))),
  };
}

}  // namespace

std::vector<StepKind> collective_kinds() {
  std::vector<StepKind> kinds = sums();
  for (const auto& more : {moves(), composed()}) kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

std::vector<StepKind> custom_kinds() {
  std::vector<StepKind> kinds = {
      linear("random portions", random_portions,
             CODE(run_linear(RandomPortions::draw(c.rows(), c.dice()), c.x[0], c.group, Site::here())),
             CODE(RandomPortions::draw(c.rows(), c.dice()))),
      linear("random reads", summed_over_group,
             CODE(run_linear(RandomReads{c.group.size(), c.dice()}, c.x[0], c.group, Site::here())),
             CODE(RandomReads{c.group.size(), c.dice()}))};
  for (StepKind& kind : kinds) kind.feature = Feature::custom;
  return kinds;
}

}  // namespace weft::random_programs
