// SPDX-License-Identifier: Apache-2.0
// gpu-matmul and gpu-memory: the overhead of Weft over direct CUDA calls. gpu-CLIP: a tiled loss compared with PyTorch.
#include "bench/local_clip.h"
#include "bench/measuring/goal.h"
#include "bench/rivals/bare.h"
#include "bench/rivals/torch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"

namespace weft::bench {
namespace {

Backend& card() {
  if (!bare::present()) throw Unavailable{"this build has no CUDA"};
  if (!available(Device::cuda)) throw Unavailable{"no CUDA device answers"};
  return backend(Device::cuda);
}

Tensor random(const Shape& shape, DType dtype, uint64_t stream) {
  return Tensor::uniform(shape, {1, stream}, -1, 1, dtype, Device::cuda);
}

Check product(DType dtype, int64_t n) {
  Backend& gpu = card();
  const Tensor a = random({n, n}, dtype, 0), b = random({n, n}, dtype, 1);
  Tensor y = Tensor::like(a);
  void* c = y.mutate();
  gpu.synchronize();
  const double operations = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  const Rounds rounds({timed([&] { gpu.matmul(a, false, b, false, {}, y); }, [&] { gpu.synchronize(); }),
                       timed([&] { bare::matmul(dtype, n, a.data(), b.data(), c); }, bare::wait)});
  const auto speed = [&](size_t which) { return rate(operations / rounds.median(which) * 1e-12, "TFLOP"); };
  return {text(dtype) + " " + std::to_string(n) + " cubed",
          speed(0),
          speed(1),
          middle(rounds.ratio(1, 0)),
          Sense::at_least,
          0.97};
}

std::vector<Check> matmul() {
  return {product(DType::bf16, 4096), product(DType::f32, 4096), product(DType::f32, 256)};
}

// The bandwidth of an operation that reads and writes `bytes`, relative to that of a copy, which reads and writes each
// byte once.
Check bandwidth(const char* what, double bytes, std::function<void()> verb) {
  constexpr size_t block = size_t{1} << 28;  // far beyond the card's cache
  Backend& gpu = card();
  const Tensor from = Tensor::full({block}, 1, DType::u8, Device::cuda);
  Tensor to = from.clone();
  void* destination = to.mutate();
  gpu.synchronize();
  const Rounds rounds({per(bytes, timed(std::move(verb), [&] { gpu.synchronize(); })),
                       per(2.0 * block, timed([&] { bare::copy(destination, from.data(), block); }, bare::wait))});
  return {what,
          rate(1e-9 / rounds.median(0), "GB"),
          rate(1e-9 / rounds.median(1), "GB"),
          middle(rounds.ratio(1, 0)),
          Sense::at_least,
          0.80};
}

std::vector<Check> memory() {
  Backend& gpu = card();
  const Tensor a = random({1 << 16, 1024}, DType::f32, 0), b = random(a.shape(), DType::f32, 1);
  const Tensor bias = random({1024}, DType::f32, 2);
  Tensor y = b.clone();
  const double array = static_cast<double>(a.bytes());
  return {bandwidth("add", 3 * array, [&] { gpu.binary(Binary::Add, a, b, y); }),
          bandwidth("exp", 2 * array, [&] { gpu.unary(Unary::Exp, {}, a, y); }),
          bandwidth("bias, then relu", 4 * array,
                    [&] {
                      gpu.binary_along(Binary::Add, a, bias, Along(a.shape(), -1), y);
                      gpu.unary(Unary::Relu, {}, y, y);
                    }),
          bandwidth("softmax of rows of 1024", 2 * array, [&] { gpu.normalize_rows(Normalizer::softmax, a, y); }),
          bandwidth("accumulate", 3 * array, [&] { gpu.accumulate(0.5, a, y); })};
}

std::vector<Check> clip() {
  Backend& gpu = card();
  std::vector<Check> checks;
  const auto measure = [&](DType dtype, const std::string& workload) {
    const LocalClip pairs(32768, 512, Device::cuda, dtype);
    for (Check& each : against_torch(timed([&] { pairs.step(); }, [&] { gpu.synchronize(); }), workload, 2, 1.5)) {
      each.what = text(dtype) + ", " + each.what;
      checks.push_back(std::move(each));
    }
  };
  measure(DType::f32, "CLIP on a card");
  const double megabytes = 1e-6 * static_cast<double>(gpu.memory().peak_bytes);
  checks.push_back({"MB at most, on the card, in f32", "", "", {megabytes, megabytes, megabytes}});
  measure(DType::bf16, "CLIP on a card in bf16");
  return checks;
}

const Goal clip_goal{"gpu-CLIP", "CLIP's loss and gradients on a card (32768 pairs, 512 wide): times PyTorch's speed",
                     clip};
const Goal matmul_goal{"gpu-matmul", "a product on a card within 3 % of cuBLAS called directly", matmul};
const Goal memory_goal{"gpu-memory", "memory-bound verbs on a card at 0.80 of a copy's bandwidth", memory};

}  // namespace
}  // namespace weft::bench
