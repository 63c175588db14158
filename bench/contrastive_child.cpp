// SPDX-License-Identifier: Apache-2.0
// The loss of CLIP alone: a batch on one rank, compared with the same batch divided among several ranks.
#include "bench/contrastive_steps.h"
#include "bench/measuring/ranks.h"
#include "weft/collectives/transports/self.h"

namespace weft::bench {

void contrastive_scaling(Ranks& ranks) {
  constexpr int64_t batch = 4096;
  constexpr int steps = 3;
  const int size = ranks.group().size();
  Communicator self(connect_self());
  ContrastiveBatch alone(batch, self), together(batch / size, ranks.group());
  const auto by_itself = [&] {
    if (ranks.group().rank().value == 0) alone.clip();
  };
  const auto with_others = [&] { together.clip(); };
  by_itself(), with_others();
  const Rounds rounds({ranks.burst(by_itself, steps), ranks.burst(with_others, steps)}, 5, 2);
  ranks.print("loss", "speed-up per rank", rounds.median(1), rounds.median(0),
              middle(rounds.ratio(0, 1)).median / size);
}

}  // namespace weft::bench
