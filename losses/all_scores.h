#pragma once
// The scores of this rank's queries with the keys of all ranks (engine/ops/scores.h), block by block as the keys come.
#include "losses/exchange.h"

namespace weft {

class AllKeys {
 public:
  // `rows` says how many keys each rank has; `own` are this rank's.
  AllKeys(Var own, Rows rows, const Exchange& exchange, Communicator& comm)
      : own_(std::move(own)), rows_(std::move(rows)), exchange_(exchange), comm_(comm) {}

  // Of every query the log sum exp over all keys but those whose numbers are in its row of `excluded`, which is i64
  // (queries, any) on the host, -1 for none.
  Var log_sum_exp(const Var& queries, const Var& scale, const Tensor& excluded = {}) const;

  struct Both {
    Var of_queries;  // over all ranks' keys
    Var of_keys;     // of this rank's keys, over all ranks' queries
    Var of_targets;  // each query's score with its target
  };
  // Keys alone travel; log-sum-exps over each rank's queries are combined, one number per key. `targets`, if there
  // are any, are numbers of keys, i64 (queries) on the host.
  Both log_sum_exp_both(const Var& queries, const Var& scale, const Tensor& targets = {}) const;

  // Of every query the sum of log(1 + exp(score)).
  Var softplus_sum(const Var& queries, const Var& scale, const Var& shift) const;

 private:
  SeenBlocks look(const Look& look) const {
    return look_at_all(own_, rows_, exchange_, comm_, look, Site::here("keys"));
  }

  const Var own_;
  const Rows rows_;
  const Exchange exchange_;
  Communicator& comm_;
};

// log(exp a + exp b + ...) of terms of one shape (n).
Var log_add_exp(std::span<const Var> terms);
inline Var log_add_exp(std::initializer_list<Var> terms) { return log_add_exp({terms.begin(), terms.size()}); }

// A factor for scores, in the features' type.
Var constant_scale(double scale, const Var& features);

}  // namespace weft
