// SPDX-License-Identifier: Apache-2.0
// P9: a step of AdamW makes one pass over its memory.
#include <deque>
#include <optional>

#include "bench/measuring/calibrate.h"
#include "bench/measuring/goal.h"
#include "bench/rivals/torch.h"
#include "weft/optim/optimizer.h"

namespace weft::bench {
namespace {

// Eight matrices with 8 M parameters in total, and their gradients.
struct Training {
  static constexpr int64_t matrices = 8, rows = 1024, count = matrices * rows * rows;

  std::deque<Parameter> parameters;
  Gradients gradients;
  std::optional<Optimizer> optimizer;

  Training() {
    std::vector<Parameter*> all;
    for (uint64_t i = 0; i < matrices; ++i) {
      all.push_back(&parameters.emplace_back("w", Tensor::uniform({rows, rows}, {1, i}, -1, 1)));
      gradients.add(*all.back(), Tensor::uniform({rows, rows}, {2, i}, -1, 1));
    }
    optimizer.emplace(all, AdamW{});
  }
  Burst step() {
    return timed([this] { optimizer->step(gradients, 1e-3); });
  }
};

std::vector<Check> bandwidth() {
  constexpr double bytes = 28.0 * Training::count;  // g, p, m and v are read, p, m and v written
  constexpr double really_moved = 16.0 / 12;        // the triad also reads the lines that it overwrites
  Training training;
  const Rounds rounds({per(bytes, training.step()), per(really_moved, triad())});
  return {{"times the bytes per second of a triad", rate(1e-9 / rounds.median(0), "GB"),
           rate(1e-9 / rounds.median(1), "GB"), middle(rounds.ratio(1, 0)), Sense::at_least, 0.80}};
}

// In its strongest setting PyTorch has a fused AdamW, which is bound by memory as Weft's is.
std::vector<Check> adamw_against_torch() {
  Training training;
  return against_torch(training.step(), "AdamW", 5, 0.95);
}

const Goal p9{"P9", "a step of AdamW on 8 M parameters at 0.80 of a triad's bandwidth", bandwidth};
const Goal p9_torch{"P9-torch",
                    "the same step 5 times as fast as PyTorch's as installed, and no slower than its fused one",
                    adamw_against_torch};

}  // namespace
}  // namespace weft::bench
