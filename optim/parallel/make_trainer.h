// SPDX-License-Identifier: Apache-2.0
#pragma once
// Creates a trainer whose stage, the division of memory among ranks, is chosen at run time.
#include "weft/optim/parallel/data_parallel.h"

namespace weft {

// Stages 0, 1 and 2 are DataParallel, stage 3 is Sharded.
std::unique_ptr<Trainer> make_trainer(const std::vector<ParameterGroup>& groups, Communicator& comm,
                                      const DataParallel::Options& options = {});

}  // namespace weft
