// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi.h"

namespace weft {

std::unique_ptr<Processes> start_mpi(int&, char**&, bool) { return nullptr; }
void abort_mpi(int) {}
void abort_by_launcher(int) {}
std::string mpi_library() { return ""; }
std::string mpi_launcher() { return ""; }
std::string mpi_srun() { return ""; }
bool mpi_is_launched() { return false; }

}  // namespace weft
