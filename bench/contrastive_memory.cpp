// contrastive_memory PAIRS    prints by how many bytes a step of CLIP's loss raises the peak of resident memory (P7)
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "collectives/transports/self.h"
#include "losses/clip.h"

using namespace weft;

namespace {

// A line of /proc/self/status, in bytes.
double status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return 1024 * std::stod(line.substr(name.size() + 1));
  return 0;
}

// The loss of as many pairs and its gradients. Features are of length one or so, made in their place: memory left in
// the pool would not be seen to be used again.
class Clip {
 public:
  explicit Clip(int64_t pairs) : images_(rows(pairs, 0)), texts_(rows(pairs, 1)) {}

  void step(Communicator& alone) const {
    Tape tape;
    const Var x = tape.watch(images_), y = tape.watch(texts_), scale = tape.watch(scale_);
    tape.gradient(clip_loss(x, y, scale, {.exchange = {.way = Exchange::Way::ring}}, alone), {x, y, scale});
  }

 private:
  static Tensor rows(int64_t pairs, uint64_t stream) {
    const double most = std::sqrt(3.0 / width);
    return Tensor::uniform({pairs, width}, {1, stream}, -most, most);
  }

  static constexpr int64_t width = 128;
  const Tensor images_, texts_, scale_ = Tensor::full({}, 1 / 0.07);
};

}  // namespace

int main(int, char** arguments) {
  Communicator alone(connect_self());
  const Clip small(64), clip(std::strtol(arguments[1], nullptr, 10));
  small.step(alone);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const double before = status("VmRSS");
  clip.step(alone);
  std::printf("%.0f\n", status("VmHWM") - before);
}
