// SPDX-License-Identifier: Apache-2.0
#pragma once
// InfoNCE: the cross entropy of classifying, for every query, which key of the whole batch is its own. With normalized
// queries q and keys k:
//
//   L = 1/B sum_i (log sum_j exp(q_i.k_j / temperature)  -  q_i.k_i / temperature)
//
// Keys cross ranks by the schedule (key_schedule.h). The symmetric form averages this loss with the one in which every
// key classifies its query; it needs no further scores. MoCo's form (`in_batch` false) compares each query with its own
// key and a memory bank only; then only the counts of samples cross ranks.
#include "weft/losses/common/key_schedule.h"

namespace weft {

struct InfoNceOptions {
  double temperature = 0.1;
  KeySchedule schedule = {};
  bool symmetric = false;
  Var negatives = {};    // additional keys, normalized and equal on all ranks, such as those of a MemoryBank
  bool in_batch = true;  // whether the keys of other samples are negatives
};

// Returns this rank's share. Features are (b, d) and need not be normalized.
Var info_nce(const Var& queries, const Var& keys, const InfoNceOptions& options, Communicator& comm,
             Site caller = Site::here());

}  // namespace weft
