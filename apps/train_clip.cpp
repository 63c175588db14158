// SPDX-License-Identifier: Apache-2.0
// Trains a picture encoder and a text encoder together: CLIP (Radford et al., arXiv 2103.00020).
//
// The loss asks each picture of a batch to find its sentence among the sentences of all ranks, and each sentence its
// picture. No classifier is trained: a test picture gets the class whose sentence has the nearest features, and
// training never contained that sentence. With captions, a test picture looks for its own. (A batch has several
// sentences about the same class, and each counts as wrong for the pictures of the others. The same holds for CLIP,
// whose batches have few of them; here they keep the loss far from zero.)
#include "apps/shared/captions/sentences.h"
#include "apps/shared/choices/added_options.h"
#include "apps/shared/choices/pair_loss.h"
#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/encoder/initial_weights.h"
#include "apps/shared/encoder/matcher.h"
#include "apps/shared/evaluation/features.h"
#include "apps/shared/report/picture.h"
#include "apps/shared/run/ahead.h"
#include "apps/shared/run/data_set.h"
#include "apps/shared/run/graph_steps.h"
#include "apps/shared/run/loss_watch.h"
#include "apps/shared/run/run.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/engine/text/words.h"
#include "weft/losses/common/precision.h"
#include "weft/losses/contrastive/logit_scale.h"
#include "weft/optim/training.h"

namespace weft {
namespace {

struct Settings : Options {
  EncoderChoice encoder;
  EncoderFiles files;
  std::string loss = "clip", captions;
};

struct Network : Module {
  std::unique_ptr<Sequential> encoder;  // of pictures
  Matcher matcher;
  const PairLoss& loss;
  LogitScale scale;
  Parameter bias;

  Network(const EncoderChoice& choice, const std::string& loss_name, const Sentences& about, const Init& init)
      : encoder(choice.make("encoder", init)),
        matcher(choice.features(), about.vocabulary, init),
        loss(pair_loss_named(loss_name)),
        scale("scale", init, {.initial = loss.first_scale}),
        bias("bias", init.full({}, -10)) {
    register_module(*encoder);
    register_module(matcher);
    register_module(scale);
    if (loss.biased) register_parameter(bias);
  }
};

// Of a micro-batch.
struct Pairs {
  Tensor pictures, sentences;
  std::vector<Tensor*> tensors() { return {&pictures, &sentences}; }
  Pairs to(Device device) const { return {pictures.to(device), sentences.to(device)}; }
};

void train(const Launch& rank, const Settings& settings) {
  expect_room_for_export(settings.files.exported, rank.comm);
  const Init init = settings.init(rank.device);
  Pictures data = load_data(settings, rank.comm);
  const Sentences about = sentences_about(data, settings.captions);
  must_fill_a_batch(data, settings);  // some may have no caption
  Batches batches(data.train.count(), settings.batch, init.key.seed);
  const EncoderChoice choice = fitted(settings.encoder, data);
  Network network(choice, settings.loss, about, init);
  const EncoderDescription described{choice, init.dtype, data.name, settings.loss, data.classes, about.vocabulary};
  Run run(rank, batches,
          {.title = "Pictures and sentences of " + data.name,
           .data = data.name,
           .charts = {{"Loss", {"loss", LossWatch::loss_name}},
                      {"Norm of the gradients", {LossWatch::norm_name}},
                      {"Scale of the scores", {"scale"}},
                      {"Learning rate", {"rate"}}},
           .model = in_words(described),
           .notes = data.notes,
           .warnings = data.warnings});
  start_from(settings.files.init, {EncoderDescription::name, network.parameters()}, run, rank.comm);

  Training training(settings.rule.groups(network.parameters()), rank.comm, settings.training, rank.tapes);
  Layer& encoder = training.layer("encoder", *network.encoder);
  Layer& head = training.layer("head", *network.matcher.head);
  Layer& sentences = training.layer("sentences", network.matcher.sentences);
  const Schedule rate = settings.rates(run.steps());
  const auto of_pictures = [&](Tape& tape, const Tensor& images) {
    return l2_normalize(head(encoder(tape.constant(images.to(rank.device)))));
  };
  const auto of_sentences = [&](Tape& tape, const Tensor& tokens) {
    return l2_normalize(sentences(tape.constant(tokens.to(rank.device))));
  };

  const Batch test = take(data.test, samples_between(0, data.test.count()), init.dtype);
  // The score of each test picture with each sentence.
  const auto scores_of_test = [&] {
    const Tensor pictures = encoded(test.images, of_pictures, rank.comm);
    return matmul(pictures, encoded(about.candidates, of_sentences, rank.comm), Transpose::no, Transpose::yes).value();
  };
  const bool tests = data.test.count() > 0;
  const double untrained = tests ? accuracy(scores_of_test(), about.answers) : 0;

  TrainingState state(rank.comm);
  state.add(training.optimizer(), training.average());
  run.begin(state);

  // This rank's share of the loss, which spans the pairs of all ranks.
  Tensor scale_now;
  const auto loss = [&](const Features& features, Communicator& group) {
    const Var &pictures = features[0], &texts = features[1];
    const Var scale = exp(precise(training.watch(network.scale.log_scale, pictures)));
    const Var bias = network.loss.biased ? precise(training.watch(network.bias, pictures)) : Var();
    scale_now = scale.value();
    return network.loss.share(pictures, texts, scale, bias, group);
  };
  // Pictures that are held out, with the sentences that they look for.
  const LabelledImages tested{data.test.images, about.answers};
  const auto encode_held_out = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
    const Batch pairs = take(tested, samples, init.dtype);
    return {of_pictures(tape, pairs.images), of_sentences(tape, gather_rows(about.candidates, pairs.labels).value())};
  };
  const LossWatch losses(data, settings.batch);
  const LocalBatch held_out = training.local_batch(losses.held_out());
  const auto held_out_loss = [&] { return training.evaluate(held_out, encode_held_out, loss); };

  const auto pairs_of_step = [&](std::span<const int64_t> samples, int64_t step) -> Pairs {
    const Batch pictures = take(data.train, samples, init.dtype);
    const Tensor texts = about.draw(pictures.labels, samples, init.key.fork(static_cast<uint64_t>(step)));
    return {pictures.images, texts};
  };
  auto ahead = data_ahead(batches, training, run.steps_done(), pairs_of_step, beside_steps(rank));
  GraphSteps steps(rank, training);
  while (run.running()) {
    const LocalBatch batch = training.local_batch(batches.next());
    auto pairs = run.data([&] { return ahead.next(); });
    const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      const auto& [pictures, texts] = pairs.of(samples);
      return {of_pictures(tape, pictures), of_sentences(tape, texts)};
    };
    const double now = rate(run.steps_done());
    std::optional<double> norm;
    const auto make = [&] {
      const Tensor share = training.backward(batch, encode, loss);
      norm = training.step(now, settings.largest_norm(), losses.norm(run));
      training.change(network.scale.log_scale, [&] { network.scale.limit(); });
      return std::vector{share, scale_now};
    };
    const bool alike = batch.total == settings.batch && !run.watches();
    scale_now = {};  // of the evaluation: a step in a graph frees no memory from before
    const std::vector<Tensor> made = steps.run(pairs.tensors(), now, alike, make);
    run.step(batch.total, {{"loss", made[0]}},
             losses.look(run, norm, held_out_loss, {{"scale", made[1]}, {"rate", now}}));
  }
  if (run.stopped()) return;
  Tensor scores;
  training.averaged([&] {
    export_encoder(settings.files.exported, state, described);
    if (tests) scores = scores_of_test();
  });
  if (!tests) return run.finish({});

  const int64_t rows = std::min<int64_t>(10, scores.shape()[1]), columns = std::min<int64_t>(10, scores.shape()[0]);
  const Tensor nearest = top_k(transpose(scores).value().slice(0, rows), columns).indices.value().to(Device::cpu);
  run.picture("nearest", "One row per sentence: the test pictures nearest to it, first \"" + about.texts.front() + "\"",
              grid(as_pixels(gather_rows(test.images, flatten(nearest, 0)).value()), columns));
  run.finish({in_percent(about.measured, accuracy(scores, about.answers)),
              in_percent(about.measured + " before training", untrained)});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Settings settings;
  settings.epochs = 2;
  CommandLine line("train_clip",
                   "Trains a picture and a text encoder on pictures and sentences about them, as CLIP does.", settings);
  line.add("--loss", settings.loss, "loss of matching pictures and sentences", {"clip", "siglip"});
  line.add(
      "--captions", settings.captions,
      "CSV or JSONL file of pictures' file names and captions; without it sentences have the names of the classes");
  line.add("--cached", settings.training.recompute,
           "keep only the features after forward, and recompute the rest in backward");
  add_encoder(line, settings.encoder);
  add_graph(line, settings.graph);
  settings.files.add_to(line);
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
