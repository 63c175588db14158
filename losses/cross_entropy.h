#pragma once
// The cross entropy of classes, with the options of PyTorch's, over the samples of all ranks:
//
//   L = sum_i ((1 - e) w_(t_i) l_i(t_i)  +  e / C sum_c w_c l_i(c)) / sum_i w_(t_i),    l_i = -log softmax(logits_i)
//
// where i runs over the samples (or pixels, or words) whose target t_i is not the index to ignore, w are the weights of
// the C classes, and e smoothes the labels. The sum of weights below is that of all ranks: besides it nothing crosses.
#include "collectives/communicator.h"
#include "engine/tape.h"

namespace weft {

struct CrossEntropyOptions {
  Var weights = {};             // of the classes (C), equal on all ranks and constant; none: 1
  int64_t ignore_index = -100;  // targets that do not count
  double label_smoothing = 0;
};

// This rank's share, of logits (samples, ..., C) and targets i64 (samples, ...). Where nothing counts on any rank it is
// zero, with zero gradients. Targets are checked on the CPU only.
Var cross_entropy(const Var& logits, const Var& targets, const CrossEntropyOptions& options, Communicator& comm,
                  Site caller = Site::here());

}  // namespace weft
