// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/make_trainer.h"

#include "weft/optim/parallel/sharded.h"

namespace weft {

std::unique_ptr<Trainer> make_trainer(const std::vector<ParameterGroup>& groups, Communicator& comm,
                                      const DataParallel::Options& options) {
  if (options.stage == 3) return std::make_unique<Sharded>(groups, comm);
  return std::make_unique<DataParallel>(groups, comm, options);
}

}  // namespace weft
