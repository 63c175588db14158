// SPDX-License-Identifier: Apache-2.0
// Trains an image encoder without labels, on Fashion-MNIST or your pictures: SimCLR
// (Chen et al., arXiv 2002.05709), or another --method.
//
// Each picture gives two random views. A network turns views into features, and the loss asks it to find each view's
// counterpart among all views of the batch, on all ranks. Afterwards a linear classifier predicts the classes of the
// pictures from the features; its accuracy measures what the encoder has learnt. docs/tour.md explains this file.
#include "apps/shared/choices/added_options.h"
#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/encoder/initial_weights.h"
#include "apps/shared/evaluation/picture_features.h"
#include "apps/shared/run/ahead.h"
#include "apps/shared/run/data_set.h"
#include "apps/shared/run/feature_watch.h"
#include "apps/shared/run/graph_steps.h"
#include "apps/shared/run/loss_watch.h"
#include "apps/shared/run/run.h"
#include "apps/shared/run/views.h"
#include "weft/collectives/share.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

struct Settings : Options {
  EncoderChoice encoder;
  MethodChoice method;
  Augmentation augmentation;
  EncoderFiles files;
  WatchOptions watch;
  bool no_probes = false;
};

struct Network : Module {
  std::unique_ptr<Sequential> encoder, head;
  std::unique_ptr<Method> method;

  Network(const EncoderChoice& choice, const MethodChoice& method_choice, int64_t classes, const Init& init) {
    constexpr int64_t width = 64;  // of the features that the loss compares
    encoder = choice.make("encoder", init);
    head = projection_head("head", choice.features(), 256, width, init);
    register_module(*encoder);
    register_module(*head);
    const auto another = [&](const std::string& name) {
      auto both = std::make_unique<Sequential>(name);
      both->append(choice.make(name + ".encoder", init));
      both->append(projection_head(name + ".head", choice.features(), 256, width, init));
      return both;
    };
    method = make_method(method_choice, {parameters(), another, width, classes}, init);
    register_module(*method);
  }
};

Run::Plan plan_of(const Pictures& data, const EncoderDescription& about, double flops_of_a_view) {
  std::vector<std::string> notes = data.notes;
  if (!data.labelled()) notes.push_back("the pictures have no classes, so probes and nearest neighbours are left out");
  return watched({.title = "Contrastive learning on " + data.name,
                  .data = data.name,
                  .charts = {{"Loss", {"loss", LossWatch::loss_name}},
                             {"Norm of the gradients", {LossWatch::norm_name}},
                             {"Learning rate", {"rate"}}},
                  .flops_per_image = 2 * flops_of_a_view,
                  .model = in_words(about),
                  .notes = std::move(notes),
                  .warnings = data.warnings},
                 data);
}

void train(const Launch& rank, const Settings& settings) {
  expect_room_for_export(settings.files.exported, rank.comm);
  const Init init = settings.init(rank.device);
  const Pictures data = load_data(settings, rank.comm);
  Batches batches(data.train.count(), settings.batch, init.key.seed);
  check_method(settings.method, settings, data.labelled());
  const EncoderChoice choice = fitted(settings.encoder, data);
  Network network(choice, settings.method, data.count_of_classes(), init);
  const bool probes = !settings.no_probes && can_be_classified(data);
  const EncoderDescription about{choice, init.dtype, data.name, settings.method.in_short(), data.classes};
  Run run(rank, batches, plan_of(data, about, training_flops(network.parameters(), choice)));
  start_from(settings.files.init, {EncoderDescription::name, network.parameters()}, run, rank.comm);

  Training training(settings.rule.groups(network.parameters()), rank.comm, settings.training, rank.tapes);
  Layer& encoder = training.layer("encoder", *network.encoder);
  Layer& head = training.layer("head", *network.head);
  const Schedule rate = settings.rates(run.steps());
  const double untrained = !probes ? 0 : probe(data, &encoder, init, rank.comm);

  FeatureWatch watch(data, settings.watch, init, rank.comm);
  TrainingState state(rank.comm);
  state.add(training.optimizer(), training.average());
  state.add(network.buffers());
  run.begin(state);

  const auto key_of = [&](int64_t step) { return init.key.fork(static_cast<uint64_t>(step)); };
  const auto views_at = [&](const LabelledImages& images, std::span<const int64_t> samples, int64_t step) {
    return views_of(images, samples, key_of(step), settings.augmentation, init.dtype);
  };
  const auto views_to_train = [&](auto samples, int64_t step) { return views_at(data.train, samples, step); };
  auto ahead = data_ahead(batches, training, run.steps_done(), views_to_train, beside_steps(rank));
  const LossWatch losses(data, settings.batch);
  const LocalBatch held_out = training.local_batch(losses.held_out());
  const ByMicroBatch<Views> held_out_views(
      held_out, [&](auto samples) { return views_at(data.test, samples, -1).to(rank.device); });

  // The features of two random views of each sample.
  const auto encode = [&](const ByMicroBatch<Views>& views) {
    return [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      const auto& [first, second, labels] = views.of(samples);
      return network.method->features(tape.constant(first), tape.constant(second), labels,
                                      [&](const Var& x) { return head(encoder(x)); });
    };
  };
  // This rank's share of the loss, which spans the views of all ranks.
  const auto loss = [&](const Pass& pass) {
    return [&, pass](const Features& views, Communicator& group) { return network.method->share(views, pass, group); };
  };
  const auto validate = [&] { return training.evaluate(held_out, encode(held_out_views), loss({.key = key_of(-1)})); };
  GraphSteps steps(rank, training);
  while (run.running()) {
    const Random step = key_of(run.steps_done());
    const LocalBatch batch = training.local_batch(batches.next());
    auto views = run.data([&] { return ahead.next(); });
    const double now = rate(run.steps_done());
    std::optional<double> norm;
    const auto make = [&] {
      const Tensor share = training.backward(batch, encode(views), loss({.training = true, .key = step}));
      norm = training.step(now, settings.largest_norm(), losses.norm(run));
      network.method->after_step();
      return std::vector{share};
    };
    const bool alike = batch.total == settings.batch && !run.watches();
    const Tensor share = steps.run(views.tensors(), now, alike, make)[0];
    run.step(batch.total, {{"loss", share}},
             losses.look(run, norm, validate, watch.look(run, encoder, head, {{"rate", now}})));
  }
  if (run.stopped()) return;
  run.picture("views", "Training pictures, each followed by random views of it",
              beside_views(data.train, settings.augmentation, init.key));
  std::vector<Figure> figures;
  training.averaged([&] {
    watch.show(run, encoder);
    export_encoder(settings.files.exported, state, about);
    if (!probes) return;
    auto train_features = features_of(data.train, &encoder, init, rank.comm),
         test_features = features_of(data.test, &encoder, init, rank.comm);
    const int64_t voters = std::min<int64_t>(20, data.train.count()), classes = data.count_of_classes();
    const double neighbours = nearest_neighbours(train_features, test_features, classes, voters, rank.comm);
    const double trained = linear_probe(std::move(train_features), std::move(test_features), classes, rank.comm);
    figures = {in_percent("test accuracy: linear probe", trained),
               in_percent("test accuracy: " + text(voters) + " nearest neighbours", neighbours),
               in_percent("test accuracy: linear probe before training", untrained),
               in_percent("test accuracy: linear probe on raw pixels", probe(data, nullptr, init, rank.comm))};
  });
  run.finish(figures);
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
  add_encoder(line, settings.encoder);
  add_method(line, settings.method);
  add_augmentation(line, settings.augmentation);
  add_graph(line, settings.graph);
  settings.watch.add_to(line);
  settings.files.add_to(line);
  line.add("--no-probes", settings.no_probes, "do not measure the features before and after training");
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
