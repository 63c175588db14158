// SPDX-License-Identifier: Apache-2.0
#pragma once
// The expectations for every distributed case, as checks that each rank makes; a check throws on every rank that sees a
// fault.
#include "tests/cases/collectives/collective_case.h"
#include "tests/support/gradcheck.h"

namespace weft {

inline std::vector<Var> inputs_of(const DistributedCase& c, Communicator& comm, Tape& tape,
                                  Device device = Device::cpu) {
  std::vector<Var> inputs;
  uint64_t stream = 100 * static_cast<uint64_t>(comm.rank().value);
  for (const Shape& shape : c.shapes(comm.rank().value, comm.size()))
    inputs.push_back(tape.watch(Tensor::uniform(shape, {3, ++stream}, c.low, c.high, DType::f64, device)));
  return inputs;
}

// All ranks' values, on rank 0.
inline DistributedCase::Values everyones(const Tensor& mine, Communicator& comm) {
  const Communicator::Rows sizes = comm.rows_of(mine.size());
  const std::vector<double> all = comm.gather_v(mine.reshape({mine.size()}), sizes, {0}).values();
  DistributedCase::Values result;
  if (comm.rank().value != 0) return result;
  auto at = all.begin();
  for (const int64_t size : sizes) {
    result.emplace_back(at, at + size);
    at += size;
  }
  return result;
}

// Rank 0 checks the results of all ranks: if every rank did, 256 ranks would compute 65,536 results.
inline void check_specification(const DistributedCase& c, Communicator& comm, Device device = Device::cpu) {
  if (!c.specification) return;
  Tape tape;
  const std::vector<Var> inputs = inputs_of(c, comm, tape, device);
  const Tensor value = c.call(inputs, comm).value();
  require(value.device() == device, c.name, ": the result is on ", value.device());
  const DistributedCase::Values given = everyones(inputs[0].value(), comm), results = everyones(value, comm);
  if (comm.rank().value != 0) return;
  const DistributedCase::Values expected = c.specification(given);
  for (size_t r = 0; r < expected.size(); ++r) {
    require(results[r].size() == expected[r].size(), c.name, ": rank ", r, " has ", results[r].size(), " values, not ",
            expected[r].size());
    for (size_t i = 0; i < expected[r].size(); ++i)
      require(std::abs(results[r][i] - expected[r][i]) <= 1e-12, c.name, ": value ", i, " of rank ", r, " is ",
              results[r][i], ", not ", expected[r][i]);
  }
}

inline void check_gradients(const DistributedCase& c, Communicator& comm, Device device = Device::cpu) {
  const auto total = [&](double x) { return comm.all_reduce(Tensor::full({}, x, DType::f64)).item(); };
  const uint64_t seed = 17 + static_cast<uint64_t>(comm.rank().value);
  const GradientCheck check([&](std::span<const Var> x) { return c.call(x, comm); },
                            c.shapes(comm.rank().value, comm.size()), c.low, c.high, device, seed, total);
  for (int order = 1; order <= c.orders; ++order) {
    const Mismatch found = order == 1 ? check.first_order() : check.second_order();
    require(found.ok(), c.name, ": order ", order, ", numeric ", found.numeric, ", analytic ", found.analytic);
  }
}

}  // namespace weft
