// P3 and conv: whole training steps against PyTorch.
#include "bench/goal.h"
#include "bench/networks.h"
#include "bench/torch.h"

namespace weft::bench {
namespace {

// Holds against the stronger of the two settings only if it holds against both.
std::vector<Check> network_against_torch(Network& net, const std::string& workload, double bound) {
  return against_torch(timed([&] { net.step(); }), workload, bound, bound);
}

std::vector<Check> tiny_mlp() {
  Mlp net(16, 16, 32, 8);
  return network_against_torch(net, "tiny MLP", 15);
}

std::vector<Check> conv_encoder() {
  ConvEncoder net(512);
  return network_against_torch(net, "conv encoder", 1.0);
}

const Goal p3{"P3", "a training step of a tiny MLP (16-32-8, batch 16) at least 15 times as fast as PyTorch's",
              tiny_mlp};
const Goal conv{"conv", "a step of a conv encoder (1-32-64, 28x28, 512 images) no slower than PyTorch's", conv_encoder};

}  // namespace
}  // namespace weft::bench
