#pragma once
// A training whose way of dividing the work is chosen when the program runs.
#include "optim/data_parallel.h"

namespace weft {

// Stages 0, 1 and 2 are DataParallel, stage 3 is Sharded.
std::unique_ptr<Trainer> make_trainer(const std::vector<ParameterGroup>& groups, Communicator& comm,
                                      const DataParallel::Options& options = {});

}  // namespace weft
