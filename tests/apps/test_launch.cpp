// SPDX-License-Identifier: Apache-2.0
// How a program's ranks use cards. launch.py has the rest.
#include "apps/shared/launch/launch.h"

#include <mutex>

#include "tests/kernels/cuda_checks.h"
#include "tests/support/on_cards.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;
using Catch::Contains;

TEST_CASE("ranks as threads get a card each with NCCL or share one, and TF32 is used only if asked for") {
  SKIP_WITHOUT_A_CARD();
  std::mutex mutex;
  std::vector<double> sums, products;
  std::string description;
  const auto body = [&](const Launch& rank) {
    const auto filled = [&](double value) { return Tensor::full({64, 64}, value, DType::f32, rank.device); };
    Tensor product = filled(0);
    backend(rank.device).matmul(filled(1 + 0x1p-15), false, filled(1), false, {}, product);
    const Tensor sum = rank.comm.all_reduce(filled(rank.comm.rank().value + 1));
    const std::lock_guard lock(mutex);
    sums.push_back(sum.values().back());
    products.push_back(product.values().back());
    description = rank.description;
  };
  Options options;
  CommandLine line("train", "Trains.", options);
  std::vector<std::string> words = {"train", "--ranks", "2", "--device", "cuda", "--tf32"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  CHECK(launch(line, static_cast<int>(arguments.size()), arguments.data(), body) == 0);
  backend(Device::cuda).allow_tf32(false);
  CHECK(sums == std::vector<double>{3, 3});
  CHECK(products == std::vector<double>{64, 64});
  CHECK_THAT(description, Contains("threads (2 ranks)"));
  CHECK((description.find("NCCL") != std::string::npos) == (usable_cards() >= 2));
}
