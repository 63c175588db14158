// SPDX-License-Identifier: Apache-2.0
// P6 and P7: contrastive losses compared with PyTorch, in time and in memory.
#include <fmt/format.h>

#include <filesystem>

#include "bench/contrastive_steps.h"
#include "bench/measuring/goal.h"
#include "bench/measuring/of_kind.h"
#include "bench/rivals/torch.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/tensor/error.h"

namespace weft::bench {
namespace {

constexpr int64_t batch = 4096;

std::vector<Check> speed() {
  Communicator self(connect_self());
  // NT-Xent has two views of each sample, so half as many samples give the same number of scores.
  ContrastiveBatch pairs(batch, self), views(batch / 2, self);
  std::vector<Check> checks;
  // PyTorch makes two passes over CLIP's scores, but only one over those of the other losses, so its strongest setting
  // comes closer there. With AVX2, matrix products take most of the time, and PyTorch computes the same ones.
  const bool wide = of_chosen_kind().lanes == 16;
  const auto add = [&](const std::string& loss, double strongest, std::function<void()> step) {
    for (Check check : against_torch(timed(std::move(step)), loss, wide ? 4 : 3.5, strongest)) {
      check.what = loss + ", " + check.what;
      checks.push_back(check);
    }
  };
  add("CLIP", wide ? 2.2 : 1.9, [&] { pairs.clip(); });
  add("SigLIP", wide ? 1.8 : 1.4, [&] { pairs.siglip(); });
  add("NT-Xent", wide ? 1.8 : 1.4, [&] { views.nt_xent(); });
  return checks;
}

// The increase of the peak of resident memory by a first step with this batch, in a process that has run only a small
// step before. torch_steps.py measures PyTorch in the same way.
double extra_bytes(int64_t pairs) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "contrastive_memory";
  std::FILE* answer = popen(fmt::format("'{}' {}", program.string(), pairs).c_str(), "r");
  double bytes = 0;
  const bool answered = answer && std::fscanf(answer, "%lf", &bytes) == 1;
  const int status = answer ? pclose(answer) : -1;
  require(answered && status == 0, program.string(), " did not say how many bytes a step takes");
  return bytes;
}

Check memory_check(const char* what, double ours, double theirs, double value, double bound) {
  const auto megabytes = [](double bytes) { return fmt::format("{:.1f} MB", bytes * 1e-6); };
  return {what, megabytes(ours), megabytes(theirs), {value, value, value}, Sense::at_most, bound};
}

std::vector<Check> clip_memory() {
  const double ours = extra_bytes(batch), doubled = extra_bytes(2 * batch);
  Torch torch(Torch::Setting::as_installed);
  const double theirs = torch.step(fmt::format("memory of CLIP {}", batch))();
  return {memory_check("a part of PyTorch's", ours, theirs, ours / theirs, 1.0 / 50),
          memory_check("times, with twice the batch", doubled, ours, doubled / ours, 2.1)};
}

const Goal p6{"P6", "contrastive losses and their gradients (4096 x 4096 scores, 128 wide): times PyTorch's speed",
              speed};
const Goal p7{"P7", "memory that CLIP's loss and gradients take (4096 pairs, 128 wide)", clip_memory};

}  // namespace
}  // namespace weft::bench
