// SPDX-License-Identifier: Apache-2.0
#pragma once
// The expectations for every distributed case, as checks that each rank makes; a check throws on every rank that sees a
// fault.
#include "tests/support/gradcheck.h"
#include "weft/collectives/cases/collective_case.h"

namespace weft {

inline std::vector<Var> inputs_of(const DistributedCase& c, Communicator& comm, Tape& tape,
                                  Device device = Device::cpu) {
  std::vector<Var> inputs;
  uint64_t stream = 100 * static_cast<uint64_t>(comm.rank().value);
  for (const Shape& shape : c.shapes(comm.rank().value, comm.size()))
    inputs.push_back(tape.watch(Tensor::uniform(shape, {3, ++stream}, c.low, c.high, DType::f64, device)));
  return inputs;
}

// All ranks' values, on every rank.
inline DistributedCase::Values everyones(const Tensor& mine, Communicator& comm) {
  const Communicator::Rows sizes = comm.rows_of(mine.size());
  const std::vector<double> all = comm.all_gather_v(mine.reshape({mine.size()}), sizes).values();
  DistributedCase::Values result;
  auto at = all.begin();
  for (const int64_t size : sizes) {
    result.emplace_back(at, at + size);
    at += size;
  }
  return result;
}

inline void check_specification(const DistributedCase& c, Communicator& comm, Device device = Device::cpu) {
  if (!c.specification) return;
  Tape tape;
  const std::vector<Var> inputs = inputs_of(c, comm, tape, device);
  const Tensor value = c.call(inputs, comm).value();
  require(value.device() == device, c.name, ": the result is on ", value.device());
  const std::vector<double> result = value.values();
  const auto me = static_cast<size_t>(comm.rank().value);
  const std::vector<double> expected = c.specification(everyones(inputs[0].value(), comm))[me];
  require(result.size() == expected.size(), c.name, ": ", result.size(), " values, not ", expected.size());
  for (size_t i = 0; i < result.size(); ++i)
    require(std::abs(result[i] - expected[i]) <= 1e-12, c.name, ": value ", i, " is ", result[i], ", not ",
            expected[i]);
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
