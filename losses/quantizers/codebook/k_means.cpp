// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/quantizers/codebook/k_means.h"

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/division.h"
#include "weft/losses/quantizers/codebook/chosen_rows.h"
#include "weft/losses/quantizers/codebook/code_sums.h"

namespace weft {

Clusters k_means(const Tensor& tokens, int64_t codes, int64_t iterations, bool unit, Communicator& comm,
                 const Random& key, Site site) {
  const int64_t total = Division(tokens.shape()[0], comm, site).total, dim = tokens.shape()[1];
  if (total == 0) return {};
  Clusters clusters{rows_by_number(tokens, chosen_numbers(codes, total, key), comm, site), {}};
  for (int64_t i = 0;; ++i) {
    CodeSums own(codes, dim, tokens.device());
    own.add(tokens, nearest_rows(tokens, clusters.centers));
    const CodeSums::Total all = own.over(comm, tokens.dtype(), site);
    all.must_be_exact();
    clusters.counts = all.counts;
    if (i == iterations) return clusters;
    const Tensor zero = Tensor::zeros(all.sums.shape(), tokens.dtype(), tokens.device());
    const Var counts = repeat(all.counts, 1, dim);
    const Var means = where(greater(counts.value(), zero), all.sums / counts, clusters.centers);
    clusters.centers = (unit ? l2_normalize(means) : means).value();
  }
}

}  // namespace weft
