// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pictures that the programs learn, the same on every rank.
#include "weft/collectives/communicator.h"
#include "weft/data/fashion_mnist.h"

namespace weft {

// Calls load_fashion_mnist on every rank. Throws a Fault on all ranks if they have read different data, for example
// because one node has other files at the same path.
Pictures load_data(const std::filesystem::path& folder, Communicator& comm);

}  // namespace weft
