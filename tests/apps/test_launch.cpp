// SPDX-License-Identifier: Apache-2.0
// How a program's ranks use cards, and what they refuse. launch.py has the rest.
#include "apps/shared/launch/launch.h"

#include <mutex>

#include "apps/shared/run/run.h"
#include "tests/kernels/cuda_checks.h"
#include "tests/support/on_cards.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/files/checkpoint.h"
#include "weft/engine/kernels/backend.h"

using namespace weft;
using Catch::Contains;

namespace {

int launched(std::vector<std::string> words, const std::function<void(const Launch&)>& body) {
  Options options;
  CommandLine line("train", "Trains.", options);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return launch(line, static_cast<int>(arguments.size()), arguments.data(), body);
}

}  // namespace

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
  CHECK(launched({"train", "--ranks", "2", "--device", "cuda", "--tf32"}, body) == 0);
  backend(Device::cuda).allow_tf32(false);
  CHECK(sums == std::vector<double>{3, 3});
  CHECK(products == std::vector<double>{64, 64});
  CHECK_THAT(description, Contains("threads (2 ranks)"));
  CHECK((description.find("NCCL") != std::string::npos) == (usable_cards() >= 2));
}

TEST_CASE("a checkpoint whose place in the data is none ends the run with the code for malformed input") {
  const ScratchFolder folder;
  const auto begins_from = [&](const std::string& place) {
    const std::string checkpoint = save_checkpoint(folder.path, 3, std::vector<NamedTensor>(),
                                                   {{"data", place + " of 96 samples, 12 at a time, seed 1"}});
    return launched(
        {"train", "--quiet", "--device", "cpu", "--ranks", "1", "--resume", checkpoint, "--out", folder / "run"},
        [](const Launch& rank) {
          Batches batches(96, 12, 1);
          TrainingState state(rank.comm);
          Run(rank, batches, {.title = "Sums", .charts = {{"Loss", {"loss"}}}}).begin(state);
        });
  };
  CHECK(begins_from("epoch 0 batch 3") == 0);
  CHECK(begins_from("epoch 0 batch 9") == exit_codes::malformed_input);
  CHECK(begins_from("epoch x batch 3") == exit_codes::malformed_input);
}
