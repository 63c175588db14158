// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "weft/collectives/communicator.h"

namespace weft {

// Peak floating-point operations per second of the cores of all ranks, measured on all ranks at once in a few
// milliseconds; 0 on a card. Every rank calls it and gets the sum.
double peak_flops(Device device, Communicator& comm);

}  // namespace weft
