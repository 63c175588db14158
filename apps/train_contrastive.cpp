// SPDX-License-Identifier: Apache-2.0
// Trains an image encoder on Fashion-MNIST without labels: SimCLR (Chen et al., arXiv 2002.05709).
//
// Each picture gives two random views. A network turns views into features, and the loss asks it to find each view's
// counterpart among all views of the batch, on all ranks. Afterwards a linear classifier predicts the ten classes of
// clothes from the features; its accuracy measures what the encoder has learnt. docs/tour.md explains this file.
#include "apps/shared/choices/named_loss.h"
#include "apps/shared/evaluation/probe.h"
#include "apps/shared/run/run.h"
#include "apps/shared/run/words.h"
#include "apps/shared/training/course.h"
#include "apps/shared/training/data_set.h"
#include "apps/shared/training/training.h"
#include "weft/collectives/share.h"
#include "weft/data/augment.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/models/encoders.h"

namespace weft {
namespace {

struct Settings : CourseSettings {
  int64_t width = 32;
  double temperature = 0.1;
  std::string loss = "nt-xent", encoder = "conv";
  bool no_probes = false;
};

struct Network : Module {
  std::unique_ptr<Sequential> encoder, head;

  Network(const Settings& settings, const Init& init) {
    const bool conv = settings.encoder == "conv";
    encoder = conv ? conv_encoder("encoder", 1, settings.width, init)
                   : mlp_encoder("encoder", 28 * 28, 8 * settings.width, init);
    head = projection_head("head", 8 * settings.width, 256, 64, init);
    register_module(*encoder);
    register_module(*head);
  }
};

// A frozen encoder's features of this rank's part of some pictures, or the pixels if there is no encoder. Every rank
// computes the same number of pieces, since with --zero 3 each piece contains collectives.
LabelledFeatures features_of(const LabelledImages& data, Layer* encoder, const Launch& rank, DType dtype) {
  const int64_t ranks = rank.comm.size(), me = rank.comm.rank().value, at_once = 500;
  const int64_t first = data.count() * me / ranks, last = data.count() * (me + 1) / ranks;
  const int64_t pieces = (data.count() / ranks + at_once) / at_once;
  Vars rows, labels;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = std::min(first + i * at_once, last), end = std::min(begin + at_once, last);
    const Batch batch = take(data, samples_between(begin, end), dtype);
    Tape tape;
    const Tape::Pause without_gradients(&tape);
    const Var images = tape.constant(batch.images.to(rank.device));
    rows.push_back((encoder ? (*encoder)(images) : flatten(images)).value());
    labels.push_back(batch.labels.to(rank.device));
  }
  return {concat(rows, 0).value(), concat(labels, 0).value()};
}

void train(const Launch& rank, const CommandLine& line, const Settings& settings) {
  const Options& options = line.options();
  const FashionMnist data = load_data(settings.data, rank.comm);
  Course course(settings, options, data.train.count());
  const DType dtype = options.chosen_dtype();
  Network network(settings, {.key = course.key, .dtype = dtype, .device = rank.device});
  const double flops_per_image = 2 * training_flops(network.parameters(), 28);  // two views
  const auto probe = [&](Layer* encoder) {
    return linear_probe(features_of(data.train, encoder, rank, dtype), features_of(data.test, encoder, rank, dtype),
                        FashionMnist::classes, rank.comm);
  };
  const double pixels = settings.no_probes ? 0 : probe(nullptr);
  const double untrained = settings.no_probes ? 0 : probe(network.encoder.get());

  Training training({{network.parameters(), AdamW{.weight_decay = 1e-4}}}, rank, options);
  Layer& encoder = training.layer("encoder", *network.encoder);
  Layer& head = training.layer("head", *network.head);
  const NamedLoss& loss_of_views = loss_named(settings.loss);

  Run run(rank, line,
          {.title = "Contrastive learning on Fashion-MNIST",
           .charts = {{"Loss", {"loss"}}, {"Learning rate", {"rate"}}},
           .steps = course.steps,
           .steps_per_epoch = course.steps_per_epoch,
           .flops_per_image = flops_per_image});
  TrainingState state(rank.comm);
  state.add(training.optimizer());
  run.begin(state, course.batches);

  while (run.running()) {
    const Random step = course.key.fork(static_cast<uint64_t>(run.steps_done()));
    const LocalBatch batch = training.local_batch(course.batches.next());
    // The features of two random views of each sample.
    const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      const Tensor images = take(data.train, samples, dtype).images;
      Features views;
      for (const uint64_t view : {0, 1}) {
        const Tensor augmented = run.data([&] { return augment(images, samples, step.fork(view)).to(rank.device); });
        views.push_back(head(encoder(tape.constant(augmented))));
      }
      return views;
    };
    // This rank's share of the loss, which spans the views of all ranks.
    const auto loss = [&](const Features& views, Communicator& group) {
      return loss_of_views.share(views[0], views[1], settings.temperature, step, group);
    };
    const Tensor share = training.backward(batch, encode, loss);
    const double now = course.rate(run.steps_done());
    training.step(now);
    run.step(batch.total, {{"loss", share.item()}}, {{"rate", now}});
  }
  if (run.stopped()) return;
  if (settings.no_probes) return run.finish({});

  const auto train_features = features_of(data.train, &encoder, rank, dtype),
             test_features = features_of(data.test, &encoder, rank, dtype);
  const double trained = linear_probe(train_features, test_features, FashionMnist::classes, rank.comm);
  const double neighbours = nearest_neighbours(train_features, test_features, FashionMnist::classes, 20, rank.comm);
  run.finish({{"test accuracy: linear probe", percent(trained)},
              {"test accuracy: 20 nearest neighbours", percent(neighbours)},
              {"test accuracy: linear probe before training", percent(untrained)},
              {"test accuracy: linear probe on raw pixels", percent(pixels)}});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Options options;
  options.epochs = 3;
  Settings settings;
  settings.batch = 250;
  settings.rate = 1e-2;
  CommandLine line("train_contrastive",
                   "Trains an image encoder on Fashion-MNIST without labels, by contrastive learning.", options);
  line.add("--loss", settings.loss, "loss of two random views of each picture", names_of_losses());
  line.add("--encoder", settings.encoder, "network that turns a picture into features", {"conv", "mlp"});
  line.add("--temperature", settings.temperature, "temperature, for the losses that have one", {0.001, 100});
  line.add("--width", settings.width, "channels of the first convolution; the encoder has 8 times as many features",
           {1, 1024});
  line.add("--no-probes", settings.no_probes, "do not measure the features before and after training");
  settings.add_to(line);
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, line, settings); });
}
