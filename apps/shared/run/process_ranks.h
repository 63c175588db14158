// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks that are threads of one process have one memory, so what is large need be there only once.
#include "weft/collectives/communicator.h"

namespace weft {

class ProcessRanks {
 public:
  explicit ProcessRanks(Communicator& comm);  // all ranks call it

  bool leads() const { return leader_ == comm_.rank().value; }  // one rank of each process does

  // A copy of what the rank that leads this process has; tensors share their memory. All ranks call it.
  template <class T> T from_leader(const T& mine) {
    const void* theirs = address_from_leader(&mine);
    T copy = *static_cast<const T*>(theirs);
    comm_.barrier(Site::here("copied"));
    return copy;
  }

 private:
  const void* address_from_leader(const void* mine);

  Communicator& comm_;
  int leader_ = 0;
};

}  // namespace weft
