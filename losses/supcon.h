#pragma once
// Supervised contrastive learning (Khosla et al., the sum outside of the logarithm): every feature is drawn to all of
// its class and away from the others. With z the n normalized features of all ranks, of which A have a companion, and
// P_i those of i's class without i:
//
//   L = 1/A sum_i 1/|P_i| sum_(p in P_i) (log sum_(j != i) exp(z_i.z_j / temperature)  -  z_i.z_p / temperature)
//
// where features without a companion do not count. Several views of a sample are several features with its label.
// The sum over P_i is z_i times the sum of its class, so besides the features (exchange.h) only sums of classes travel:
// (classes, d), in an all_reduce.
#include "losses/exchange.h"

namespace weft {

struct SupConOptions {
  double temperature = 0.1;
  Exchange exchange = {};
};

// This rank's share, of features (b, d) that need not be normalized and labels i64 (b), from 0 to classes - 1.
Var supcon(const Var& features, const Tensor& labels, int64_t classes, const SupConOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
