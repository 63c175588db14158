#include "optim/make_trainer.h"

#include "optim/sharded.h"

namespace weft {

std::unique_ptr<Trainer> make_trainer(const std::vector<ParameterGroup>& groups, Communicator& comm,
                                      const DataParallel::Options& options) {
  if (options.stage == 3) return std::make_unique<Sharded>(groups, comm);
  return std::make_unique<DataParallel>(groups, comm, options);
}

}  // namespace weft
