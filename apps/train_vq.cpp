// SPDX-License-Identifier: Apache-2.0
// Trains a VQ-VAE, an autoencoder with discrete codes (van den Oord et al., arXiv 1711.00937).
//
// An encoder turns each picture into a grid of tokens, 7 x 7 for one of 28 x 28 pixels, a quantizer replaces each token
// by the nearest of a few hundred codes, and a decoder reconstructs the picture from the codes alone. The program
// reports the squared error on test pictures and how many of the codes are in use.
#include <cmath>
#include <optional>

#include "apps/shared/choices/named_quantizer.h"
#include "apps/shared/evaluation/exact_sum.h"
#include "apps/shared/evaluation/first_codes.h"
#include "apps/shared/evaluation/reconstruction.h"
#include "apps/shared/report/chart.h"
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
#include "weft/losses/common/precision.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

struct Settings : Options {
  int64_t width = 32;
  std::string quantizer = "vq", first_weights;
  QuantizerSettings of_quantizer;
};

void train(const Launch& rank, const Settings& settings) {
  const Init init = settings.init(rank.device);
  const Pictures data = load_data(settings, rank.comm);
  must_be_multiples(data, VqVae::token_side);
  const int64_t values = data.height() * data.across() * data.channels();  // of a picture
  Batches batches(data.train.count(), settings.batch, init.key.seed);
  NamedQuantizer named = quantizer_named(settings.quantizer, settings.of_quantizer, init);
  const CodeUsage unused(named.parts, named.codes);
  const VqVae::Sizes sizes{.channels = data.channels(), .width = settings.width, .dim = named.dim};
  VqVae network("vq-vae", sizes, init, std::move(named.quantizer));
  Quantizer& quantizer = network.quantizer();
  check_parameters(settings.quantizer, quantizer, settings);

  Run run(rank, batches,
          {.title = "A VQ-VAE on " + data.name,
           .data = data.name,
           .charts = {{"Loss", {"loss", "squared error", LossWatch::loss_name}},
                      {"Norm of the gradients", {LossWatch::norm_name}},
                      {"Codes in use", {"perplexity"}},
                      {"Learning rate", {"rate"}}},
           .notes = data.notes,
           .warnings = data.warnings});

  const bool has_codes = start_from(settings.first_weights, initial_tensors(network), run, rank.comm);
  Training training(settings.rule.groups(network.parameters()), rank.comm, settings.training, rank.tapes);
  network.encoder = &training.layer("encoder", *network.encoder);
  network.decoder = &training.layer("decoder", *network.decoder);
  const Schedule rate = settings.rates(run.steps());
  if (!has_codes) find_first_codes(network, data.train, training.local_batch(Batches(batches).next()), init, rank.comm);

  TrainingState state(rank.comm);
  state.add(training.optimizer(), training.average());
  state.add(network.buffers());
  run.begin(state);
  const LossWatch losses(data, settings.batch);
  const LabelledImages held_out = subset(data.test, losses.held_out());
  const auto held_out_loss = [&] { return reconstruction_error(network, held_out, init, rank.comm); };
  const auto pictures_of = [&](std::span<const int64_t> samples, int64_t) {
    return take(data.train, samples, init.dtype).images;
  };
  auto ahead = data_ahead(batches, training, run.steps_done(), pictures_of, beside_steps(rank));
  while (run.running()) {
    const Random step = init.key.fork(static_cast<uint64_t>(run.steps_done()));
    const LocalBatch batch = training.local_batch(batches.next());
    const auto pictures = run.data([&] { return ahead.next(); });
    Communicator& group = training.micro_batch_group();
    ExactSum sums({2}, rank.device);  // of the loss, and of its squared error
    CodeUsage usage = unused;
    std::optional<HostCopy> told;
    for (const MicroBatch& micro : batch.micro_batches) {
      const Tensor& images = pictures.of(micro.samples);
      Tape tape;
      training.begin(tape);
      const Pass pass = {.training = true, .key = step, .first_sample = micro.first};
      const auto [made, tokens] = network(tape.constant(images), pass, group);
      const Var error = share(sum(square(precise(made - images))), batch.total * values, group);
      const Var loss = error + tokens.loss * micro.weight;
      sums.add(stack({loss.value(), error.value()}, 0).value());
      usage.add(tokens.indices.value());
      if (&micro == &batch.micro_batches.back()) {  // what the host must know comes while a card computes the backward
        told.emplace(sums.over(rank.comm));
        quantizer.add_up(rank.comm);
      }
      tape.backward(loss, training.gradients());
    }
    const double now = rate(run.steps_done());
    const auto norm = training.step(now, settings.largest_norm(), losses.norm(run));
    usage.over(rank.comm);
    const std::vector<double> of_all = told->values().values();
    if (std::isfinite(of_all[0])) quantizer.update(rank.comm, step);  // Run::step ends a run whose loss is not finite
    const double whole = rank.comm.rank().value == 0 ? of_all[0] : 0;
    run.step(
        batch.total, {{"loss", whole}},
        losses.look(
            run, norm, held_out_loss,
            {{"squared error", of_all[1]}, {"perplexity", [usage] { return usage.perplexity(); }}, {"rate", now}}));
  }
  if (run.stopped()) return;
  if (data.test.count() == 0) return run.finish({});

  CodeUsage usage = unused;
  double error = 0;
  const int64_t tokens = data.height() * data.across() / (VqVae::token_side * VqVae::token_side);
  training.averaged([&] {
    error = reconstruction_error(network, data.test, init, rank.comm, &usage);
    run.picture("reconstructions", "Test pictures, each above its reconstruction from " + text(tokens) + " tokens",
                beside_originals(network, data.test, init, rank.comm));
  });
  run.chart("Tokens of the test set per code, most used code first", bar_chart(usage.most_used_first(), "code"));
  run.finish({in_digits("squared error on the test set", error),
              in_digits("perplexity of the codes", usage.perplexity()),
              {"codes without a token", grouped(usage.dead()), static_cast<double>(usage.dead())}});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Settings settings;
  settings.epochs = 4;
  settings.rule = {.name = "adam", .weight_decay = 0};
  QuantizerSettings& quantizer = settings.of_quantizer;
  CommandLine line("train_vq",
                   "Trains a VQ-VAE, an autoencoder with discrete codes, on Fashion-MNIST or your pictures.", settings);
  add_init(line, settings.first_weights);
  line.add("--quantizer", settings.quantizer, "quantizer that replaces tokens by codes", names_of_quantizers());
  line.add("--codes", quantizer.codes, "size of the codebook", {2, 65536});
  line.add("--dim", quantizer.dim, "features of a token, for the quantizers that do not fix it", {1, 4096});
  line.add("--commitment", quantizer.commitment, "weight of the distance between tokens and codes", {0, 100});
  line.add("--decay", quantizer.decay, "decay of the moving averages that update the codes", {0, 1});
  line.add("--width", settings.width, "channels of the first convolution", {1, 1024});
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
