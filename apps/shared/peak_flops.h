#pragma once
#include "collectives/communicator.h"

namespace weft {

// Floating-point operations per second that the cores of all ranks can do at best, measured on all at once in a few
// milliseconds; 0 on a card. Every rank calls it and gets the sum.
double peak_flops(Device device, Communicator& comm);

}  // namespace weft
