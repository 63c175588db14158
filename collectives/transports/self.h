// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of one rank, which runs the same code as a group of many.
#include "weft/collectives/transport.h"

namespace weft {

std::unique_ptr<Transport> connect_self();

}  // namespace weft
