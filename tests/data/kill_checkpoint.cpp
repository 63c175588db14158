// SPDX-License-Identifier: Apache-2.0
// kill_checkpoint FOLDER writes checkpoints until it is killed. It starts from the latest one after checking that it
// holds, bit by bit, what was saved at its step. kill_checkpoint.py reads its output and kills it.
#include <unistd.h>

#include <cstdio>

#include "weft/data/files/checkpoint.h"

namespace weft {
namespace {

// One or two MiB, with size and contents that depend on the step.
NamedTensors state_at(int64_t step) {
  const auto rows = 1000 + step % 500;
  const Random random{.seed = static_cast<uint64_t>(step)};
  return {{"weight", Tensor::uniform({rows, 200}, random.fork(1))},
          {"moment", Tensor::uniform({rows, 60}, random.fork(2), -1, 1, DType::f64)},
          {"half", Tensor::uniform({rows}, random.fork(3), -1, 1, DType::bf16)},
          {"step", Tensor::full({}, static_cast<double>(step), DType::i64)}};
}

void say(const std::string& line) {  // one write, so that a line is complete or absent
  require(write(STDOUT_FILENO, line.data(), line.size()) == static_cast<ssize_t>(line.size()), "kill_checkpoint: pipe");
}

void check(const Latest& latest) {
  for (const auto& [name, expected] : state_at(latest.step)) {
    const Tensor saved = latest.file->read(name);
    const bool same = saved.shape() == expected.shape() &&
                      std::equal(saved.data<char>(), saved.data<char>() + saved.bytes(), expected.data<char>());
    require(same, "kill_checkpoint: step ", latest.step, ": ", name, " is not what was saved");
  }
}

// Falls and rises, so the best is seldom among the last.
int64_t score_at(int64_t step) { return step * 7919 % 1009; }

// Of all that were saved.
int64_t best_up_to(int64_t step) {
  int64_t best = 1;
  for (int64_t each = 1; each <= step; ++each)
    if (score_at(each) >= score_at(best)) best = each;
  return best;
}

void run(const std::filesystem::path& folder) {
  const Latest latest = latest_checkpoint(folder);
  if (latest.file) {
    check(latest);
    const Latest best = checkpoint_at(folder / "best");
    check(best);
    require(best.step == best_up_to(latest.step), "kill_checkpoint: the best is step ", best_up_to(latest.step),
            ", not ", best.step);
  }
  say("loaded " + std::to_string(latest.step) + " damaged " + std::to_string(latest.damaged.size()) + "\n");
  for (int64_t step = latest.step + 1;; ++step) {
    save_checkpoint(folder, step, state_at(step),
                    {{score_key, score_words(static_cast<double>(score_at(step)), "test")}});
    say("saved " + std::to_string(step) + "\n");
  }
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  try {
    weft::require(count == 2, "usage: kill_checkpoint FOLDER");
    weft::run(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;  // only a signal ends it
}
