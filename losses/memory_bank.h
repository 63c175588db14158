#pragma once
// A memory bank, as MoCo has: a queue of the latest keys of all ranks, as further negatives of info_nce and nt_xent.
// Keys enter in the order of their global numbers and without a gradient, so the bank has the same bits on every rank,
// however many ranks there are.
#include "collectives/communicator.h"
#include "engine/nn/init.h"
#include "engine/nn/module.h"

namespace weft {

class MemoryBank final : public Module {
 public:
  // Begins with random directions.
  MemoryBank(const std::string& name, int64_t size, int64_t width, const Init& init);

  Parameter keys;    // (size, width), normalized
  Parameter cursor;  // i64 (): where the next key goes

  Var negatives() const { return same_everywhere(keys.value); }

  // After backward: this rank's keys (b, width), which need not be normalized, and all others'. Costs one all_gather.
  void push(const Tensor& own, Communicator& comm, Site caller = Site::here());
};

}  // namespace weft
