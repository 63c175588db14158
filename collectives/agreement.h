#pragma once
// Whether values that should be equal on all ranks are.
#include <span>
#include <string>

#include "collectives/communicator.h"

namespace weft {

struct Named {
  std::string name;
  Tensor value;
};

// Error on every rank if one of these differs between ranks in a single bit: it names the first that does, and the
// first element and the ranks where it does. Costs a checksum of each and one small exchange.
void expect_agreement(const std::string& what, std::span<const Named> values, Communicator& comm,
                      Site site = Site::here());

}  // namespace weft
