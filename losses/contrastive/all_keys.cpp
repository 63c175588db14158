// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/contrastive/all_keys.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/scores.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

// The positions of some keys in a block. An empty Var if the block has none of them, which spares the kernel a search.
Var found_in(const RowRuns& runs, const Tensor& keys, const Var& queries) {
  if (!keys.defined()) return {};
  const Tensor places = places_in(runs, keys);
  const auto* begin = places.data<int64_t>();
  if (std::all_of(begin, begin + places.size(), [](int64_t place) { return place < 0; })) return {};
  return constant_like(places.to(queries.device()), queries);
}

Var nothing(const Var& queries, double value) {
  return constant_like(Tensor::full({queries.shape()[0]}, value, DType::f64, queries.device()), queries);
}

int64_t rows_in(const RowRuns& runs) {
  int64_t sum = 0;
  for (const RowRun& run : runs) sum += run.count;
  return sum;
}

// Each block's result holds one value per query, then keys(runs) values of keys, then one per query for targets, if the
// block has any. Combines those of queries and targets, and leaves the keys' values in `seen`.
template <class Keys> AllKeys::LogSumExps combined(BlockResults& seen, const Var& queries, Keys keys) {
  const int64_t count = queries.shape()[0];
  Vars of_queries;
  Var of_targets;
  for (BlockResult& part : seen) {
    const Var all = part.result;
    const int64_t end_of_keys = count + keys(part.runs);
    of_queries.push_back(slice(all, 0, 0, count));
    part.result = slice(all, 0, count, end_of_keys);
    if (end_of_keys == all.size()) continue;
    const Var found = slice(all, 0, end_of_keys, all.size());
    of_targets = of_targets.defined() ? of_targets + found : found;
  }
  if (!of_targets.defined()) of_targets = nothing(queries, 0);
  return {seen.empty() ? nothing(queries, -INFINITY) : log_add_exp(of_queries), of_targets};
}

}  // namespace

AllKeys::LogSumExps AllKeys::log_sum_exp(const Var& queries, const Var& scale, const Tensor& targets,
                                         const Tensor& excluded) const {
  BlockResults seen = map([=](const Block& block) {
    return score_log_sum_exp(queries, block.rows, scale, found_in(block.runs, excluded, queries),
                             found_in(block.runs, targets, queries));
  });
  return combined(seen, queries, [](const RowRuns&) { return 0; });
}

AllKeys::LogSumExps AllKeys::log_sum_exp_both(const Var& queries, const Var& scale, const Tensor& targets) const {
  BlockResults seen = map([=](const Block& block) {
    return score_log_sum_exp_both(queries, block.rows, scale, found_in(block.runs, targets, queries));
  });
  LogSumExps sums = combined(seen, queries, rows_in);
  sums.of_keys = seen.empty() ? nothing(own_, -INFINITY)
                              : own_rows(all_reduce_log_sum_exp(in_order(seen), comm_, site_), rows_, comm_, site_);
  return sums;
}

Var AllKeys::softplus_sum(const Var& queries, const Var& scale, const Var& shift, const Tensor& targets) const {
  Var total = nothing(queries, 0);
  for (const BlockResult& part : map([=](const Block& block) {
         return score_softplus_sum(queries, block.rows, scale, shift, found_in(block.runs, targets, queries));
       }))
    total = total + part.result;
  return total;
}

Var log_add_exp(std::span<const Var> terms) { return terms.size() == 1 ? terms[0] : log_sum_exp(stack(terms, 1), 1); }

Var log_sum_exp_of_negatives(const Var& queries, const Var& negatives, const Var& scale) {
  require(negatives.shape().rank() == 2 && negatives.shape()[1] == queries.shape()[1] &&
              negatives.dtype() == queries.dtype(),
          "negatives are (any, d) like the features, ", queries.dtype(), " ", queries.shape(), ", not ",
          negatives.dtype(), " ", negatives.shape(),
          negatives.dtype() == DType::bf16 ? "; make the bank that has them f32" : "");
  return score_log_sum_exp(queries, negatives, scale);
}

Var constant_scale(double scale, const Var& features) {
  return replicated_constant(Tensor::full({}, scale, features.dtype(), features.device()));
}

}  // namespace weft
