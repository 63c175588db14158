// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reductions over the scores of this rank's queries with the keys of all ranks (engine/ops/scores.h), block by
// block as the keys arrive. Results are f64.
#include "weft/losses/common/key_schedule.h"

namespace weft {

class AllKeys {
 public:
  // `own` are this rank's keys, `rows` the number of keys on each rank.
  AllKeys(Var own, Rows rows, const KeySchedule& schedule, Communicator& comm, Site site = Site::here())
      : own_(std::move(own)), rows_(std::move(rows)), schedule_(schedule), comm_(comm), site_(site) {}

  struct LogSumExps {
    Var of_queries;    // over all ranks' keys
    Var of_targets;    // each query's score with its target, which is never larger than of_queries
    Var of_keys = {};  // of this rank's keys, over all ranks' queries
  };
  // `targets` are global numbers of keys, i64 (queries) on the host, or undefined. A query is scored with all keys
  // except those whose numbers are in its row of `excluded`, i64 (queries, any) on the host, -1 for none.
  LogSumExps log_sum_exp(const Var& queries, const Var& scale, const Tensor& targets,
                         const Tensor& excluded = {}) const;
  // Only keys travel. The keys' log-sum-exps over each rank's queries are combined across ranks, one number per key.
  LogSumExps log_sum_exp_both(const Var& queries, const Var& scale, const Tensor& targets) const;

  // For every query the sum over keys of log(1 + exp(score)), with -score in place of the score with its target.
  Var softplus_sum(const Var& queries, const Var& scale, const Var& shift, const Tensor& targets) const;

 private:
  BlockResults map(const BlockFunction& function) const {
    return map_blocks(own_, rows_, schedule_, comm_, function, site_);
  }

  const Var own_;
  const Rows rows_;
  const KeySchedule schedule_;
  Communicator& comm_;
  const Site site_;
};

// log(exp a + exp b + ...) of terms of one shape (n).
Var log_add_exp(std::span<const Var> terms);
inline Var log_add_exp(std::initializer_list<Var> terms) { return log_add_exp({terms.begin(), terms.size()}); }

// A constant factor for scores, of the features' type.
Var constant_scale(double scale, const Var& features);

// The log-sum-exp of each query's scores with additional keys that are identical on all ranks.
Var log_sum_exp_of_negatives(const Var& queries, const Var& negatives, const Var& scale);

}  // namespace weft
