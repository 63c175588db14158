// SPDX-License-Identifier: Apache-2.0
// Training on ranks as threads with a card each, as far as there are cards.
#include <chrono>
#include <thread>

#include "tests/support/on_cards.h"
#include "tests/support/on_ranks.h"
#include "tests/support/random_steps.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/models/encoders.h"
#include "weft/optim/parallel/data_parallel.h"

namespace weft {
namespace {

using namespace std::chrono_literals;

// The weights after a few steps of contrastive learning with a loss that gathers features and reduces their cotangents.
// One rank after the other is late after a gradient.
std::vector<double> train(Communicator& comm, DataParallel::Options options, std::chrono::milliseconds late = 0ms) {
  const auto head = projection_head("head", 6, 5, 4, Init{.key = {3}, .device = Device::cuda});
  DataParallel training({{head->parameters(), AdamW{}}}, comm, options);
  int gradients = 0;
  const auto hook = training.gradients().after_accumulate([&](const Parameter&, const Tensor&) {
    if (++gradients % comm.size() == number(comm)) std::this_thread::sleep_for(late);
  });
  for (int step = 0; step < 3; ++step) {
    Tape tape;
    declare_group(tape, comm);
    const auto view = [&](int use) {
      return (*head)(tape.constant(data_of(number(comm), {5, 6}, 10 * step + use, DType::f32).to(Device::cuda)));
    };
    const Var first = view(0), second = view(1);
    training.sync().expect_last_pass();
    tape.backward(nt_xent(first, second, {}, comm), training.gradients());
    training.step(0.01);
  }
  std::vector<double> all;
  for (const Parameter* parameter : head->parameters())
    for (const double w : parameter->value.values()) all.push_back(w);
  return all;
}

std::vector<double> weights_after_training(int ranks, CardOf which, DataParallel::Options options) {
  std::vector<double> weights;
  on_threads_with_cards(
      ranks,
      [&](Communicator& comm) {
        const std::vector<double> all = train(comm, options);
        if (number(comm) == 0) weights = all;
      },
      which);
  return weights;
}

TEST_CASE("training on several cards gives the same weights as on one") {
  if (!several_cards()) return;
  for (const int stage : {0, 1, 2})
    for (const int n : {2, 3, 4}) {
      INFO("stage " << stage << ", " << n << " ranks");
      const std::vector<double> on_one = weights_after_training(n, CardOf::first, {.stage = stage});
      CHECK(on_one.size() > 0);
      CHECK(weights_after_training(n, CardOf::rank, {.stage = stage}) == on_one);
    }
}

TEST_CASE("training by NCCL gives the same weights if sums begin during backward, whichever rank is late") {
  if (!several_cards()) return;
  for (const int stage : {0, 1, 2}) {
    INFO("stage " << stage);
    const DataParallel::Options options{.stage = stage, .when = GradientSync::When::in_last_pass, .bucket = 8};
    const std::vector<double> on_one = weights_after_training(usable_cards(), CardOf::first, options);
    CHECK(on_one.size() > 0);
    CHECK_NOTHROW(on_cards_of(2, [&](std::unique_ptr<Transport> group) {
      Communicator comm(connect_nccl(std::move(group), 10s));
      require(train(comm, options, 20ms) == on_one, "the weights differ");
    }));
  }
}

// Ranks start the sums of gradients at different places among the collectives of backward.
TEST_CASE("random programs under GradientSync have the plain sums of gradients on cards connected by NCCL") {
  if (!several_cards()) return;
  for (unsigned seed = 0; seed < 24; ++seed) {
    INFO("seed " << seed);
    CHECK_NOTHROW(on_ranks_with_cards(seed % 2 ? 2 : usable_cards(), [&](std::unique_ptr<Transport> group) {
      Communicator comm(connect_nccl(std::move(group), 10s));
      RandomProgram program(seed, comm, Device::cuda);
      for (int step = 0; step < 3; ++step) program.step();
    }));
  }
}

}  // namespace
}  // namespace weft
