// SPDX-License-Identifier: Apache-2.0
#pragma once
// A batch whose numbers of micro-batches and samples differ by rank.
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/engine/nn/module.h"
#include "weft/optim/accumulate/accumulate.h"

namespace weft {

constexpr Pass training = {.training = true, .key = {21}};

struct UnevenBatch {
  static Rows rows(int r) {
    const Rows all[] = {{3, 2, 2}, {0, 1, 3, 2}, {}, {5}, {0, 2}};
    return all[r % 5];
  }
  static int64_t samples(int r) {
    const Rows mine = rows(r);
    return std::accumulate(mine.begin(), mine.end(), int64_t{0});
  }
  static Tensor images(int r) { return data_of(r, {samples(r), 3}); }
  static Tensor texts(int r) { return data_of(r, {samples(r), 2}, 1); }
};

template <class F> Tensor everyones(const Communicator& comm, F f) {
  std::vector<Var> parts;
  for (int r = 0; r < comm.size(); ++r) parts.push_back(f(r));
  return concat(parts, 0).value();
}

}  // namespace weft
