// SPDX-License-Identifier: Apache-2.0
// P3, conv and P16: whole training steps compared with PyTorch, and a training compared with the peak of the cores.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "bench/measuring/goal.h"
#include "bench/networks.h"
#include "bench/rivals/torch.h"

namespace weft::bench {
namespace {

// Both settings have the same bound, because either of them may be the faster one.
std::vector<Check> network_against_torch(Network& net, const std::string& workload, double bound) {
  return against_torch(timed([&] { net.step(); }), workload, bound, bound);
}

std::vector<Check> tiny_mlp() {
  Mlp net(16, 16, 32, 8);
  return network_against_torch(net, "tiny MLP", 15);
}

std::vector<Check> conv_encoder() {
  ConvEncoder net(512);
  return network_against_torch(net, "conv encoder", 1.2);
}

const Goal p3{"P3", "a training step of a tiny MLP (16-32-8, batch 16) at least 15 times as fast as PyTorch's",
              tiny_mlp};
const Goal conv{"conv", "a step of a conv encoder (1-32-64, 28x28, 512 images) 1.2 times as fast as PyTorch's",
                conv_encoder};

// Runs the program as a user starts it, and reads from its output which part of the cores' peak it reached.
double part_of_peak() {
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "apps/train_contrastive";
  const auto out = std::filesystem::temp_directory_path() / fmt::format("weft_bench.{}", getpid());
  std::FILE* run = popen(
      fmt::format("'{}' --ranks 2 --steps 150 --no-probes --quiet --out '{}'", program.string(), out.string()).c_str(),
      "r");
  std::string output;
  for (int c; run && (c = std::fgetc(run)) != EOF;) output += static_cast<char>(c);
  const bool ran = run && pclose(run) == 0;
  std::filesystem::remove_all(out);
  const std::string figure = "share of the cores' peak FLOP/s ";
  const size_t at = output.find(figure);
  if (!ran || at == std::string::npos) throw Unavailable{"train_contrastive did not run, or had no data"};
  return std::stod(output.substr(at + figure.size())) / 100;
}

std::vector<Check> useful_work() {
  std::vector<double> parts;
  for (int run = 0; run < 5; ++run) parts.push_back(part_of_peak());
  return {{"of the peak of two cores", "", "", middle(parts), Sense::at_least, 0.5}};
}

const Goal p16{"P16", "products and convolutions of train_contrastive, counted by hand, per second, on 2 ranks",
               useful_work};

}  // namespace
}  // namespace weft::bench
