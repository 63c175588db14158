#pragma once
// The pictures that the programs learn, the same on every rank.
#include "collectives/communicator.h"
#include "data/fashion_mnist.h"

namespace weft {

// load_fashion_mnist on every rank. A Fault on all of them if they have read different data, say because a node has
// other files at the same path.
FashionMnist load_data(const std::filesystem::path& folder, Communicator& comm);

}  // namespace weft
