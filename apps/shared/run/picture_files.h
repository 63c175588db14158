// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads the pictures of a folder, one file each. Ranks divide the files, and exchange what they have decoded, so the
// result does not depend on their number. It is in memory once per process.
#include "apps/shared/run/process_ranks.h"
#include "weft/data/pictures/open_pictures.h"

namespace weft {

// All ranks call it with the same list. A file that cannot be decoded is left out; the first few are named in a
// warning, and if they are more than half of all, in an error.
Pictures read_pictures(const PictureList& list, const WantedPictures& wanted, ProcessRanks& here, Communicator& comm);

}  // namespace weft
