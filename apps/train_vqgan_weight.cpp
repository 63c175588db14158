// SPDX-License-Identifier: Apache-2.0
// Trains a VQ autoencoder against a discriminator, as in VQGAN (Esser et al., arXiv 2012.09841).
//
// In each step the adversarial loss gets the weight
//
//   |gradient of the reconstruction loss| / (|gradient of the adversarial loss| + 1e-4),
//
// where both gradients are with respect to the decoder's last layer. A step therefore queries two gradients before its
// backward. Libraries of distributed training have failed here. Some reduce gradients in hooks that fire whenever a
// gradient is computed, so a query started a sum whose terms were not complete (ColossalAI, issue 5601). Others took
// the norms of each rank's own gradients. A query of Weft returns the gradient and does nothing else: it accumulates
// nothing, fires no hook and keeps the tape.
#include <deque>
#include <optional>

#include "apps/shared/choices/named_quantizer.h"
#include "apps/shared/evaluation/exact_sum.h"
#include "apps/shared/evaluation/first_codes.h"
#include "apps/shared/evaluation/reconstruction.h"
#include "apps/shared/run/ahead.h"
#include "apps/shared/run/data_set.h"
#include "apps/shared/run/loss_watch.h"
#include "apps/shared/run/run.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/text/words.h"
#include "weft/losses/common/adaptive_weight.h"
#include "weft/losses/common/precision.h"
#include "weft/models/discriminator.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

struct Settings : Options {
  int64_t width = 32, alone = 200;
  double weight = 0.5;
  std::string quantizer = "vq", first_weights;
};

// What the first pass over a micro-batch keeps for the second pass of the step.
struct FirstPass {
  Tape tape;
  Var of_pixels, deceit, of_codes;
  std::optional<Trial> trial;
};

void train(const Launch& rank, const Settings& settings) {
  const Init init = settings.init(rank.device);
  const Pictures data = load_data(settings, rank.comm);
  must_be_multiples(data, VqVae::token_side);
  const int64_t values = data.height() * data.across() * data.channels();  // of a picture
  const int64_t tokens = data.height() * data.across() / (VqVae::token_side * VqVae::token_side);
  Batches batches(data.train.count(), settings.batch, init.key.seed);
  NamedQuantizer named = quantizer_named(settings.quantizer, {}, init);
  CodeUsage usage(named.parts, named.codes);
  const VqVae::Sizes sizes{.channels = data.channels(), .width = settings.width, .dim = named.dim};
  VqVae network("vq-vae", sizes, init, std::move(named.quantizer));
  check_parameters(settings.quantizer, network.quantizer(), settings);
  const auto judge = patch_discriminator("discriminator", data.channels(), settings.width, init);

  Run run(
      rank, batches,
      {.title = "A VQ autoencoder and its discriminator on " + data.name,
       .data = data.name,
       .charts = {{"Reconstruction", {"loss", "squared error", LossWatch::loss_name}},
                  {"Norm of the gradients", {LossWatch::norm_name, "discriminator's gradient norm"}},
                  {"Weight of the adversarial loss", {"weight"}},
                  {"Accuracy of the discriminator on patches", {"accuracy"}}},
       .model = {{"model", "vqgan"}, {"model.width", text(settings.width)}, {"model.quantizer", settings.quantizer}},
       .notes = data.notes,
       .warnings = data.warnings});

  const bool has_codes =
      start_from(settings.first_weights, initial_tensors(network, judge->parameters()), run, rank.comm);
  Training::Options of_judge = settings.training;
  of_judge.average = 0;  // it is not used after training
  Training making(settings.rule.groups(network.parameters()), rank.comm, settings.training, rank.tapes),
      judging(settings.rule.groups(judge->parameters()), rank.comm, of_judge);
  network.encoder = &making.layer("encoder", *network.encoder);
  network.decoder = &making.layer("decoder", *network.decoder);
  Layer& verdict = judging.layer("discriminator", *judge);
  const Schedule rate = settings.rates(run.steps());
  if (!has_codes) find_first_codes(network, data.train, making.local_batch(Batches(batches).next()), init, rank.comm);

  TrainingState state(rank.comm);
  state.add(making.optimizer(), making.average());
  state.add(judging.optimizer());
  state.add(network.buffers());
  run.begin(state);
  const LossWatch losses(data, settings.batch);
  const LabelledImages held_out = subset(data.test, losses.held_out());
  const auto held_out_loss = [&] { return reconstruction_error(network, held_out, init, rank.comm); };
  const auto pictures_of = [&](std::span<const int64_t> samples, int64_t) {
    return take(data.train, samples, init.dtype).images;
  };
  auto ahead = data_ahead(batches, making, run.steps_done(), pictures_of, beside_steps(rank));
  while (run.running()) {
    const Random step = init.key.fork(static_cast<uint64_t>(run.steps_done()));
    const LocalBatch batch = making.local_batch(batches.next());
    const auto pictures = run.data([&] { return ahead.next(); });
    Communicator& group = making.micro_batch_group();
    const int64_t patches = batch.total * tokens;  // the discriminator judges as many
    ExactSum sums({3}, rank.device), gradients(network.last_weight().value.shape().with_inserted(0, 2), rank.device);
    std::deque<FirstPass> passes;
    for (const MicroBatch& micro : batch.micro_batches) {
      const Tensor& images = pictures.of(micro.samples);
      auto& [tape, of_pixels, deceit, of_codes, trial] = passes.emplace_back();
      making.begin(tape);
      const Pass pass = {.training = true, .key = step, .first_sample = micro.first};
      const auto [made, tokens] = network(tape.constant(images), pass, group);
      of_pixels = share(sum(precise(square(made - images))), batch.total * values, group);
      of_codes = tokens.loss * micro.weight;
      trial.emplace(verdict, images, made.value(), patches, group);
      deceit = as_partial(sum(precise(made * tape.constant(trial->pull))), group);
      // Two queries: the gradients of both losses with respect to the last layer.
      const Parameter& last = network.last_weight();
      gradients.add(stack({making.gradient(of_pixels, last), making.gradient(deceit, last)}, 0).value());
      const Var error = of_pixels.value().to(DType::f64), codes = of_codes.value().to(DType::f64);
      sums.add(stack({error + codes, error, trial->right}, 0).value());
    }
    HostCopy told(sums.over(rank.comm));  // arrives while a card computes the second pass
    network.quantizer().add_up(rank.comm);
    // These gradients are summed over micro-batches and ranks first: the weight is a ratio of norms of the whole batch.
    const Tensor both = gradients.over(rank.comm);
    const Var ratio = adaptive_weight(both.slice(0, 1), both.slice(1, 2));
    const Tensor weight = (ratio * (run.steps_done() < settings.alone ? 0 : settings.weight)).value();
    for (auto& [tape, of_pixels, deceit, of_codes, trial] : passes) {
      tape.backward(of_pixels + deceit * replicated_constant(weight.to(deceit.dtype())) + of_codes, making.gradients());
      trial->tape.backward(trial->hinge, judging.gradients());
    }
    const auto step_of = [&](Training& training) {
      return training.step(rate(run.steps_done()), settings.largest_norm(), losses.norm(run));
    };
    const auto norm = step_of(making), norm_of_judge = step_of(judging);
    network.quantizer().update(rank.comm, step);
    const std::vector<double> of_all = told.values().values();
    std::vector<Measured> values = {
        {"squared error", of_all[1]}, {"weight", weight}, {"accuracy", of_all[2] / static_cast<double>(2 * patches)}};
    if (norm_of_judge) values.push_back({"discriminator's gradient norm", *norm_of_judge});
    run.step(batch.total, {{"loss", rank.comm.rank().value == 0 ? of_all[0] : 0}},
             losses.look(run, norm, held_out_loss, values));
  }
  if (run.stopped()) return;
  if (data.test.count() == 0) return run.finish({});

  double error = 0;
  making.averaged([&] {
    error = reconstruction_error(network, data.test, init, rank.comm, &usage);
    run.picture("reconstructions", "Test pictures, each above its reconstruction from " + text(tokens) + " tokens",
                beside_originals(network, data.test, init, rank.comm));
  });
  run.finish(
      {in_digits("squared error on the test set", error), in_digits("perplexity of the codes", usage.perplexity())});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Settings settings;
  settings.epochs = 2;
  settings.rule = {.name = "adam", .weight_decay = 0, .beta1 = 0.5, .beta2 = 0.9};
  CommandLine line("train_vqgan_weight",
                   "Trains a VQ autoencoder on Fashion-MNIST or your pictures against a discriminator, as VQGAN does.",
                   settings);
  add_init(line, settings.first_weights);
  line.add("--quantizer", settings.quantizer, "quantizer that replaces tokens by codes", names_of_quantizers());
  line.add("--weight", settings.weight, "factor of the adversarial loss, times its adaptive weight", {0, 100});
  line.add("--alone", settings.alone, "steps before the adversarial loss counts", {0, 1 << 30});
  line.add("--width", settings.width, "channels of the first convolution of each network", {1, 1024});
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
