#pragma once
// InfoNCE: every query picks its own key among those of all ranks. With normalized queries q and keys k:
//
//   L = 1/B sum_i (log sum_j exp(q_i.k_j / temperature)  -  q_i.k_i / temperature)
//
// Keys travel. The symmetric form is the mean of this and of every key picking its query; it costs no more scores.
// MoCo's is that of each query's own key and a memory bank alone: `in_batch` false; nothing travels but the counts.
#include "losses/exchange.h"

namespace weft {

struct InfoNceOptions {
  double temperature = 0.1;
  Exchange exchange = {};
  bool symmetric = false;
  Var negatives = {};    // more keys, normalized and equal on all ranks, such as those of a MemoryBank
  bool in_batch = true;  // whether other samples' keys are among those to pick from
};

// This rank's share, of features (b, d) that need not be normalized.
Var info_nce(const Var& queries, const Var& keys, const InfoNceOptions& options, Communicator& comm,
             Site caller = Site::here());

}  // namespace weft
