// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/division.h"

#include <numeric>

namespace weft {

Division::Division(int64_t mine, Communicator& comm, Site site)
    : rows(comm.rows_of(mine, site)),
      first(std::accumulate(rows.begin(), rows.begin() + comm.rank().value, int64_t{0})),
      total(std::accumulate(rows.begin(), rows.end(), int64_t{0})),
      rank_(static_cast<size_t>(comm.rank().value)) {}

}  // namespace weft
