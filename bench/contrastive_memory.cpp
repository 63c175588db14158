// SPDX-License-Identifier: Apache-2.0
// contrastive_memory PAIRS    prints the increase in bytes of the peak resident memory by a step of CLIP's loss (P7)
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "weft/collectives/transports/self.h"
#include "weft/losses/contrastive/clip.h"

using namespace weft;

namespace {

// A line of /proc/self/status, in bytes.
double status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return 1024 * std::stod(line.substr(name.size() + 1));
  return 0;
}

// The loss of this many pairs and its gradients. Features of approximately unit length are generated in place, because
// temporary buffers would leave memory in the pool, whose reuse would not show in the peak.
class Clip {
 public:
  explicit Clip(int64_t pairs) : images_(rows(pairs, 0)), texts_(rows(pairs, 1)) {}

  void step(Communicator& alone) const {
    Tape tape;
    const Var x = tape.watch(images_), y = tape.watch(texts_), scale = tape.watch(scale_);
    tape.gradient(clip_loss(x, y, scale, {.schedule = {.kind = KeySchedule::ring}}, alone), {x, y, scale});
  }

 private:
  static Tensor rows(int64_t pairs, uint64_t stream) {
    const double bound = std::sqrt(3.0 / width);
    return Tensor::uniform({pairs, width}, {1, stream}, -bound, bound);
  }

  static constexpr int64_t width = 128;
  const Tensor images_, texts_, scale_ = Tensor::full({}, 1 / 0.07);
};

}  // namespace

int main(int, char** arguments) {
  Communicator alone(connect_self());
  const Clip small(64), clip(std::strtol(arguments[1], nullptr, 10));
  small.step(alone);
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const double before = status("VmRSS");
  clip.step(alone);
  std::printf("%.0f\n", status("VmHWM") - before);
}
