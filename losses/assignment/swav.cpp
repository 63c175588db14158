// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/assignment/swav.h"

#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/assignment/sinkhorn.h"
#include "weft/losses/assignment/swapped_prediction.h"
#include "weft/losses/common/division.h"
#include "weft/losses/common/loss_call.h"
#include "weft/losses/common/precision.h"

namespace weft {

Var swav(const Vars& high, const Vars& low, const SwavOptions& options, Communicator& comm, const Vars& queued,
         Site caller) try {
  const Site site = LossCall("swav", caller)
                        .positive("temperature", options.temperature)
                        .positive("epsilon", options.epsilon)
                        .count("iterations", options.iterations);
  require(!high.empty(), "there is no crop of high resolution");
  require(queued.empty() || queued.size() == high.size(), queued.size(), " queues for ", high.size(),
          " crops of high resolution");
  const Division division(high[0].shape()[0], comm, site);
  std::vector<Tensor> logits;
  for (size_t i = 0; i < high.size(); ++i) {
    Var scores = detach(high[i]).value();
    if (!queued.empty()) scores = concat({scores, detach(queued[i]).value()}, 0);
    logits.push_back((precise(scores) / options.epsilon).value());
  }
  std::vector<Tensor> codes = sinkhorn(std::move(logits), options.iterations, comm, site);
  for (size_t i = 0; i < high.size(); ++i) codes[i] = codes[i].slice(0, high[i].shape()[0]);  // drops those of `queued`

  Vars predictions;
  for (const Vars* crops : {&high, &low})
    for (const Var& scores : *crops) predictions.push_back(precise(scores) / options.temperature);
  const int64_t pairs = swapped_pairs(codes.size(), predictions.size());
  return share(swapped_cross_entropy(codes, predictions), division.total * pairs, comm);
} catch (Error& error) {
  fail_in("swav", caller, error);
}

}  // namespace weft
