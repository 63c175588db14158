// SPDX-License-Identifier: Apache-2.0
// P8: finding the nearest code of every token, compared with PyTorch.
#include "bench/measuring/goal.h"
#include "bench/rivals/torch.h"
#include "weft/engine/ops/nearest.h"

namespace weft::bench {
namespace {

std::vector<Check> assignment(int64_t codes, const std::string& workload, double bound) {
  const Tensor tokens = Tensor::normal({4096, 64}, {1, 1}), table = Tensor::normal({codes, 64}, {1, 2});
  return against_torch(timed([&] { nearest_rows(tokens, table); }), workload, bound, bound);
}

const Goal p8{"P8", "4096 tokens of width 64 find their codes among 1024 twice as fast as in PyTorch at its strongest",
              [] { return assignment(1024, "VQ 1024", 2.0); }};
const Goal p8_large{"P8-large", "and among 8192 codes 1.7 times as fast",
                    [] { return assignment(8192, "VQ 8192", 1.7); }};

}  // namespace
}  // namespace weft::bench
