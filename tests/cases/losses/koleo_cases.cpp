// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "tests/cases/losses/loss_case.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/statistics/koleo.h"

namespace weft {
namespace {

// Sorts the distances of each sample to all others and takes the smallest.
Var whole_koleo(const LossCase::Inputs& x, int64_t neighbours) {
  const Var unit = l2_normalize(x.rows[0]);
  Var total = Tensor::zeros({}, DType::f64);
  for (int64_t i = 0; i < x.total; ++i) {
    Vars distances;
    for (int64_t j = 0; j < x.total; ++j)
      if (j != i) distances.push_back(norm(slice(unit, 0, i, i + 1) - slice(unit, 0, j, j + 1)));
    std::sort(distances.begin(), distances.end(),
              [](const Var& a, const Var& b) { return a.value().item() < b.value().item(); });
    for (int64_t k = 0; k < neighbours; ++k) total = total - log(distances[static_cast<size_t>(k)] + 1e-8);
  }
  return total / static_cast<double>(x.total * neighbours);
}

LossCase koleo_case(std::string variant, int64_t neighbours) {
  return {
      "KoLeo",
      std::move(variant),
      {{{3}}},
      [=](const LossCase::Inputs& x, Communicator& comm) { return koleo(x.rows[0], {.neighbours = neighbours}, comm); },
      [=](const LossCase::Inputs& x) { return whole_koleo(x, neighbours); }};
}
const LossCase koleo_cases[] = {koleo_case("nearest", 1), koleo_case("three nearest", 3)};

}  // namespace
}  // namespace weft
