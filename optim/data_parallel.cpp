#include "optim/data_parallel.h"

#include <cmath>

#include "collectives/agreement.h"
#include "engine/backend.h"

namespace weft {

FlatParameters DataParallel::lay_out(const std::vector<ParameterGroup>& groups, Communicator& comm, bool sharded,
                                     bool& common) {
  const std::vector<Parameter*> parameters = parameters_of(groups);
  std::vector<NamedTensor> values;
  for (const Parameter* parameter : parameters) values.push_back({parameter->name, parameter->value});
  expect_agreement("data parallel", values, comm);
  const FlatLayout layout(parameters);
  StorageHandle memory;
  if (sharded && layout.device() == Device::cpu)
    memory = comm.allocate_common(static_cast<size_t>(layout.padded_size()) * size_of(layout.dtype()));
  common = static_cast<bool>(memory);
  if (!common) return FlatParameters(parameters);
  const auto in_common = [&](size_t) { return memory; };
  const bool first = comm.rank().value == 0;  // fills it for all
  if (!first) comm.barrier();
  FlatParameters result(parameters, in_common, first ? FlatMemory::Contents::zero : FlatMemory::Contents::kept);
  if (first) comm.barrier();
  return result;
}

DataParallel::DataParallel(const std::vector<ParameterGroup>& groups, Communicator& comm, Options options)
    : comm_(comm),
      sharded_(options.stage > 0),
      parameters_(lay_out(groups, comm, sharded_, common_)),
      sync_(parameters_.layout(), comm,
            {.when = options.when, .bucket = options.bucket, .sharded = sharded_, .frees = options.stage == 2}),
      optimizer_(parameters_, groups, share()) {
  require(options.stage >= 0 && options.stage <= 2, "data parallel: there is no stage ", options.stage,
          " here; stage 3 is Sharded");
}

Share DataParallel::share() {
  if (!sharded_) return {sync_.owned()};
  return {sync_.owned(), [this](Tensor& sums) { comm_.all_reduce(sums, sums); }};
}

double DataParallel::step(double rate, double most_norm) {
  sync_.finish();
  const bool clips = !std::isinf(most_norm);
  const double norm = clips ? optimizer_.norm(sync_.reduced(), sync_.present()) : 0;
  optimizer_.step(sync_.reduced(), sync_.present(), rate, clips ? clip(norm, most_norm) : 1);
  if (sharded_) spread_updates();
  sync_.clear();
  return norm;
}

// Every rank has updated its part.
void DataParallel::spread_updates() {
  const FlatLayout& layout = parameters_.layout();
  if (common_) {
    comm_.barrier();
  } else {
    Communicator::Rows parts;
    for (int r = 0; r < comm_.size(); ++r) parts.push_back(layout.part(r, comm_.size()).size());
    const Range owned = sync_.owned();
    parameters_.flat().copy_from(comm_.all_gather_v(parameters_.flat().slice(owned.first, owned.last), parts));
  }
  parameters_.changed(layout.all());
}

}  // namespace weft
