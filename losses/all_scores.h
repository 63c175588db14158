#pragma once
// The scores of this rank's queries with the keys of all ranks (engine/ops/scores.h), block by block as the keys come.
// What is found of them is f64.
#include "losses/exchange.h"

namespace weft {

class AllKeys {
 public:
  // `rows` says how many keys each rank has; `own` are this rank's.
  AllKeys(Var own, Rows rows, const Exchange& exchange, Communicator& comm, Site site = Site::here())
      : own_(std::move(own)), rows_(std::move(rows)), exchange_(exchange), comm_(comm), site_(site) {}

  struct LogSumExps {
    Var of_queries;    // over all ranks' keys
    Var of_targets;    // each query's score with its target, which is never more
    Var of_keys = {};  // of this rank's keys, over all ranks' queries
  };
  // `targets` are numbers of keys, i64 (queries) on the host, or there are none. Each query has all keys but those
  // whose numbers are in its row of `excluded`, i64 (queries, any) on the host, -1 for none.
  LogSumExps log_sum_exp(const Var& queries, const Var& scale, const Tensor& targets,
                         const Tensor& excluded = {}) const;
  // Keys alone travel; log-sum-exps over each rank's queries are combined, one number per key.
  LogSumExps log_sum_exp_both(const Var& queries, const Var& scale, const Tensor& targets) const;

  // Of every query the sum of log(1 + exp(score)), where the score with its target counts with the other sign.
  Var softplus_sum(const Var& queries, const Var& scale, const Var& shift, const Tensor& targets) const;

 private:
  SeenBlocks look(const Look& look) const { return look_at_all(own_, rows_, exchange_, comm_, look, site_); }

  const Var own_;
  const Rows rows_;
  const Exchange exchange_;
  Communicator& comm_;
  const Site site_;
};

// log(exp a + exp b + ...) of terms of one shape (n).
Var log_add_exp(std::span<const Var> terms);
inline Var log_add_exp(std::initializer_list<Var> terms) { return log_add_exp({terms.begin(), terms.size()}); }

// A factor for scores, in the features' type.
Var constant_scale(double scale, const Var& features);

// log sum exp of queries' scores with further keys that all ranks have.
Var log_sum_exp_of_negatives(const Var& queries, const Var& negatives, const Var& scale);

}  // namespace weft
