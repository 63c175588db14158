#pragma once
// A group of one rank, by the same path as many.
#include "collectives/transport.h"

namespace weft {

std::unique_ptr<Transport> connect_self();

}  // namespace weft
