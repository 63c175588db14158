// SPDX-License-Identifier: Apache-2.0
// Trains an image encoder without labels, on Fashion-MNIST or your pictures: SimCLR (Chen et al., arXiv 2002.05709).
//
// Each picture gives two random views. A network turns views into features, and the loss asks it to find each view's
// counterpart among all views of the batch, on all ranks. Afterwards a linear classifier predicts the classes of the
// pictures from the features; its accuracy measures what the encoder has learnt. docs/tour.md explains this file.
#include <array>
#include <map>

#include "apps/shared/choices/named_loss.h"
#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/encoder/initial_weights.h"
#include "apps/shared/evaluation/picture_features.h"
#include "apps/shared/run/ahead.h"
#include "apps/shared/run/data_set.h"
#include "apps/shared/run/feature_watch.h"
#include "apps/shared/run/run.h"
#include "weft/collectives/share.h"
#include "weft/data/augment.h"
#include "weft/optim/schedules.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

struct Settings : Options {
  EncoderChoice encoder;
  double temperature = 0.1;
  EncoderFiles files;
  std::string loss = "nt-xent";
  WatchOptions watch;
  bool no_probes = false;
};

struct Network : Module {
  std::unique_ptr<Sequential> encoder, head;

  Network(const EncoderChoice& choice, const Init& init) {
    encoder = choice.make("encoder", init);
    head = projection_head("head", choice.features(), 256, 64, init);
    register_module(*encoder);
    register_module(*head);
  }
};

int64_t first_of(std::span<const int64_t> samples) { return samples.empty() ? -1 : samples[0]; }

// Two random views of each sample of a micro-batch, by the first of these samples.
using Views = std::map<int64_t, std::array<Tensor, 2>>;

Views views_of(const LabelledImages& data, const LocalBatch& batch, const Random& key, DType dtype) {
  Views views;
  for (const MicroBatch& micro : batch.micro_batches) {
    const Tensor images = take(data, micro.samples, dtype).images;
    for (const uint64_t view : {0, 1})
      views[first_of(micro.samples)][view] = augment(images, micro.samples, key.fork(view));
  }
  return views;
}

void train(const Launch& rank, const Settings& settings) {
  expect_room_for_export(settings.files.exported, rank.comm);
  const Init init = settings.init(rank.device);
  const Pictures data = load_data(settings, rank.comm);
  Batches batches(data.train.count(), settings.batch, init.key.seed);
  const EncoderChoice choice = fitted(settings.encoder, data);
  Network network(choice, init);
  const bool probes = !settings.no_probes && can_be_classified(data);
  const EncoderDescription about{choice, init.dtype, data.name, settings.loss, data.classes};
  Run run(rank, batches,
          watched({.title = "Contrastive learning on " + data.name,
                   .charts = {{"Loss", {"loss"}}, {"Learning rate", {"rate"}}},
                   .flops_per_image = 2 * training_flops(network.parameters(), data.side()),  // two views
                   .model = in_words(about),
                   .notes = data.notes,
                   .warnings = data.warnings},
                  data));
  if (!data.labelled()) run.note("the pictures have no classes, so probes and nearest neighbours are left out");
  start_from(settings.files.init, network.parameters(), run, rank.comm);

  Training training({{network.parameters(), AdamW{.weight_decay = 1e-4}}}, rank.comm, settings.training);
  Layer& encoder = training.layer("encoder", *network.encoder);
  Layer& head = training.layer("head", *network.head);
  const Schedule rate = one_cycle(settings.rate, 50, run.steps());
  const NamedLoss& loss_of_views = loss_named(settings.loss);
  const double untrained = !probes ? 0 : probe(data, &encoder, init, rank.comm);

  FeatureWatch watch(data, settings.watch, init, rank.comm);
  TrainingState state(rank.comm);
  state.add(training.optimizer());
  run.begin(state);

  const auto key_of = [&](int64_t step) { return init.key.fork(static_cast<uint64_t>(step)); };
  const auto next_views = [&, upcoming = batches, made = run.steps_done()]() mutable -> Views {
    if (made == run.steps()) return {};
    return views_of(data.train, training.local_batch(upcoming.next()), key_of(made++), init.dtype);
  };
  Ahead<Views> ahead(next_views, has_spare_core(rank.comm));
  while (run.running()) {
    const Random step = key_of(run.steps_done());
    const LocalBatch batch = training.local_batch(batches.next());
    const Views views = run.data([&] { return ahead.next(); });
    // The features of two random views of each sample.
    const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      Features features;
      for (const Tensor& images : views.at(first_of(samples)))
        features.push_back(head(encoder(tape.constant(images.to(rank.device)))));
      return features;
    };
    // This rank's share of the loss, which spans the views of all ranks.
    const auto loss = [&](const Features& views, Communicator& group) {
      return loss_of_views.share(views[0], views[1], settings.temperature, step, group);
    };
    const Tensor share = training.backward(batch, encode, loss);
    const double now = rate(run.steps_done());
    training.step(now);
    std::vector<Value> measured = watch.look(run, encoder, head);
    measured.push_back({"rate", now});
    run.step(batch.total, {{"loss", share.item()}}, measured);
  }
  if (run.stopped()) return;
  watch.show(run, encoder);
  export_encoder(settings.files.exported, state, about);
  if (!probes) return run.finish({});

  const auto train_features = features_of(data.train, &encoder, init, rank.comm),
             test_features = features_of(data.test, &encoder, init, rank.comm);
  const double trained = linear_probe(train_features, test_features, data.count_of_classes(), rank.comm);
  const int64_t voters = std::min<int64_t>(20, data.train.count());
  const double neighbours =
      nearest_neighbours(train_features, test_features, data.count_of_classes(), voters, rank.comm);
  run.finish({in_percent("test accuracy: linear probe", trained),
              in_percent("test accuracy: " + text(voters) + " nearest neighbours", neighbours),
              in_percent("test accuracy: linear probe before training", untrained),
              in_percent("test accuracy: linear probe on raw pixels", probe(data, nullptr, init, rank.comm))});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Settings settings;
  settings.epochs = 3;
  settings.batch = 250;
  settings.rate = 1e-2;
  CommandLine line(
      "train_contrastive",
      "Trains an image encoder without labels, by contrastive learning, on Fashion-MNIST or your pictures.", settings);
  line.add("--loss", settings.loss, "loss of two random views of each picture", names_of_losses());
  line.add("--encoder", settings.encoder.network, "network that turns a picture into features", names_of_encoders());
  line.add("--temperature", settings.temperature, "temperature, for the losses that have one", {0.001, 100});
  line.add("--width", settings.encoder.width,
           "channels of the first convolution; the encoder has 8 times as many features", {1, 1024});
  add_watch(line, settings.watch);
  settings.files.add_to(line);
  line.add("--no-probes", settings.no_probes, "do not measure the features before and after training");
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
