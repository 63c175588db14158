// SPDX-License-Identifier: Apache-2.0
#include "tools/web/contrast.h"

#include <cmath>

#include "weft/collectives/run_ranks.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/contrastive/nt_xent.h"

namespace weft::web {
namespace {

constexpr int64_t pairs = pairs_of_contrast, dims = 16;
constexpr double rate = 0.5;

struct Features {
  Tensor first, second;
  double loss;
};

// One process trains; how its features are divided among ranks comes later.
Features trained(const Contrast& settings) {
  Features features;
  const Tensor points = Tensor::normal({pairs, dims}, {.seed = 1});
  Mlp network("network", {dims, 32, dims}, {});
  run_ranks(1, [&](Communicator& comm) {
    for (int step = 0;; ++step) {
      Tape tape;
      const auto view = [&](uint64_t number) {
        const Tensor noise = Tensor::normal({pairs, dims}, {3, 2 * static_cast<uint64_t>(step) + number});
        return network(tape.constant((Var(points) + Var(noise) * settings.noise).value()));
      };
      const Var first = view(0), second = view(1);
      const Var loss = nt_xent(first, second, {.temperature = settings.temperature}, comm);
      features = {first.value(), second.value(), loss.value().item()};
      if (step == settings.steps) return;
      Gradients gradients;
      tape.backward(loss, gradients);
      for (Parameter* parameter : network.parameters())
        parameter->value = (Var(parameter->value) - Var(gradients[*parameter]) * rate).value();
    }
  });
  return features;
}

// says[s][r]: what the loss of rank s says of the features of rank r.
using Says = std::vector<std::vector<Tensor>>;

Says gradients(const Features& features, const Contrast& settings) {
  const auto ranks = static_cast<size_t>(settings.ranks);
  Says says(ranks, std::vector<Tensor>(ranks));
  run_ranks(settings.ranks, [&](Communicator& comm) {
    const int64_t me = comm.rank().value, mine = pairs / settings.ranks;
    Tape tape;
    const Var x = tape.watch(features.first.slice(me * mine, (me + 1) * mine));
    const Var y = tape.watch(features.second.slice(me * mine, (me + 1) * mine));
    const Var share = nt_xent(x, y, {.temperature = settings.temperature}, comm);
    // With the seed 1 on one rank only, that rank's loss is the objective.
    for (size_t s = 0; s < ranks; ++s) {
      const Var seed(Tensor::full({}, static_cast<size_t>(me) == s));
      says[s][static_cast<size_t>(me)] = concat(tape.gradient(share, seed, {x, y}), 0).value();
    }
  });
  return says;
}

// What all ranks get back of it, one after the other.
Var back(const Says& says, const Backward& backward) {
  const int ranks = static_cast<int>(says.size());
  std::vector<Var> all;
  for (int r = 0; r < ranks; ++r) {
    Var sum(Tensor::zeros(says[0][0].shape()));
    for (int s = 0; s < ranks; ++s)
      if (const Portion slot = backward.blocks.at(r, s); slot.count > 0)
        sum = sum + Var(says[static_cast<size_t>(s)][static_cast<size_t>(slot.from)]);
    all.push_back(sum * backward.factor);
  }
  return concat(all, 0);
}

}  // namespace

ContrastOutcome contrast(const Contrast& settings) {
  require(settings.ranks >= 1 && pairs % settings.ranks == 0 && settings.ranks <= 12, "ranks: ", settings.ranks,
          " do not divide ", pairs, " pairs, or are more than 12");
  require(settings.temperature >= 0.01 && settings.temperature <= 10, "temperature: ", settings.temperature,
          ", not 0.01 to 10");
  require(settings.noise >= 0 && settings.noise <= 10, "noise: ", settings.noise, ", not 0 to 10");
  require(settings.steps >= 0 && settings.steps <= 1000, "steps: ", settings.steps, ", not 0 to 1000");
  const Features features = trained(settings);
  const Says says = gradients(features, settings);
  const Blocks gather = blocks_of(AllGather{Rows(says.size(), 1)}, Rows(says.size(), 1));

  ContrastOutcome outcome{features.loss, {}};
  const Var right = back(says, {gather.adjoint()});
  const auto product = [](const Var& a, const Var& b) { return sum(a * b).value().item(); };
  for (const Mistake& mistake : mistakes()) {
    const Var given = back(says, mistake.made_of(gather));
    const double squares = product(given, given), of_right = product(right, right);
    const double cosine = squares > 0 ? product(given, right) / std::sqrt(squares * of_right) : 0;
    outcome.left.push_back({&mistake, std::sqrt(squares / of_right), cosine});
  }
  return outcome;
}

}  // namespace weft::web
