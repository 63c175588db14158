// SPDX-License-Identifier: Apache-2.0
#pragma once
// Supervised contrastive learning (Khosla et al., the sum outside of the logarithm): pulls every feature towards all
// features of its class and away from the others. With z the n normalized features of all ranks, P_i the features of
// i's class without i, and A the number of features whose P_i is not empty:
//
//   L = 1/A sum_i 1/|P_i| sum_(p in P_i) (log sum_(j != i) exp(z_i.z_j / temperature)  -  z_i.z_p / temperature)
//
// where features with an empty P_i do not count. Several views of a sample are several features with its label. The
// features cross ranks by the schedule (key_schedule.h). The sum over P_i needs only the sum of the features of each
// class, so in addition one all_reduce of (classes, d) and one of the class counts cross.
#include "weft/losses/common/key_schedule.h"

namespace weft {

struct SupConOptions {
  double temperature = 0.1;
  KeySchedule schedule = {};
};

// Returns this rank's share. Features are (b, d) and need not be normalized; labels are i64 (b), from 0 to classes - 1.
Var supcon(const Var& features, const Tensor& labels, int64_t classes, const SupConOptions& options, Communicator& comm,
           Site caller = Site::here());

}  // namespace weft
