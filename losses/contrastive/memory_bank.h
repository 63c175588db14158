// SPDX-License-Identifier: Apache-2.0
#pragma once
// A memory bank as in MoCo: a queue of the latest keys of all ranks, which serve as additional negatives of info_nce
// and nt_xent. Keys enter in the order of their global numbers and without a gradient, so the bank is bit-identical on
// every rank and for any number of ranks.
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/init.h"
#include "weft/engine/nn/module.h"

namespace weft {

class MemoryBank final : public Module {
 public:
  // The bank starts with random directions.
  MemoryBank(const std::string& name, int64_t size, int64_t width, const Init& init);

  Parameter keys;    // (size, width), normalized
  Parameter cursor;  // i64 (): the row that the next key overwrites

  Var negatives() const { return replicated_constant(keys.value); }

  // Adds the keys of all ranks; call it after backward. `own` are this rank's keys (b, width) and need not be
  // normalized. Costs one all_gather and a small collective for the counts.
  void push(const Tensor& own, Communicator& comm, Site caller = Site::here());
};

}  // namespace weft
