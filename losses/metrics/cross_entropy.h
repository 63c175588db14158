// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cross entropy of class predictions, with the options of PyTorch's cross_entropy, over the samples of all ranks:
//
//   L = sum_i ((1 - e) w_(t_i) l_i(t_i)  +  e / C sum_c w_c l_i(c)) / sum_i w_(t_i),    l_i = -log softmax(logits_i)
//
// where i runs over the samples (or pixels, or words) whose target t_i is not `ignore_index`, w are the weights of the
// C classes, and e is the label smoothing. Only the sum of weights in the denominator crosses ranks.
#include "weft/collectives/communicator.h"
#include "weft/engine/tape/tape.h"

namespace weft {

struct CrossEntropyOptions {
  Var weights = {};             // of the classes (C), constant and equal on all ranks; undefined means all 1
  int64_t ignore_index = -100;  // samples with this target do not count
  double label_smoothing = 0;
};

// Returns this rank's share. Logits are (samples, ..., C), targets i64 (samples, ...). If no sample counts on any rank,
// the loss and its gradients are zero. Targets out of range are an error, on a card at the next wait for it.
Var cross_entropy(const Var& logits, const Var& targets, const CrossEntropyOptions& options, Communicator& comm,
                  Site caller = Site::here());

}  // namespace weft
