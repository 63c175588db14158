// P9: a step of AdamW is one pass over its memory.
#include <deque>
#include <optional>

#include "bench/calibrate.h"
#include "bench/goal.h"
#include "bench/torch.h"
#include "optim/optimizer.h"

namespace weft::bench {
namespace {

// Eight matrices, 8 M parameters, with gradients beside them.
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
  constexpr double really_moved = 16.0 / 12;        // by the triad: lines are read before they are overwritten
  Training training;
  const Rounds rounds({per(bytes, training.step()), per(really_moved, triad())});
  return {{"times the bytes per second of a triad", rate(1e-9 / rounds.median(0), "GB"),
           rate(1e-9 / rounds.median(1), "GB"), middle(rounds.ratio(1, 0)), Sense::at_least, 0.80}};
}

// The strongest PyTorch has a fused AdamW of its own, which is bound by memory as this one is.
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
