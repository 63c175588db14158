// Learns to see from what is said about pictures: CLIP (Radford et al., arXiv 2103.00020) on Fashion-MNIST.
//
// One network turns pictures into features, another one sentences. The loss asks that each picture of a batch finds its
// sentence among all, on all ranks, and each sentence its picture. Then nobody has to train a classifier: a test
// picture belongs to the class whose sentence is the nearest, and that sentence was never said in training. (Sentences
// of a batch that are about the same class count as wrong for each other's pictures. So it is in CLIP, too, whose
// batches have few of these; here they keep the loss far from zero.)
#include "apps/shared/data_set.h"
#include "apps/shared/features.h"
#include "apps/shared/pair_loss.h"
#include "apps/shared/picture.h"
#include "apps/shared/run.h"
#include "apps/shared/training.h"
#include "apps/shared/words.h"
#include "data/descriptions.h"
#include "engine/ops/index.h"
#include "engine/ops/matmul.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
#include "losses/logit_scale.h"
#include "losses/precision.h"
#include "models/encoders.h"
#include "models/text_tower.h"
#include "optim/schedules.h"

namespace weft {
namespace {

struct Settings {
  int64_t batch = 256, width = 32;
  double rate = 2e-3;
  bool cached = false;
  std::string loss = "clip", data;
};

struct Network : Module {
  std::unique_ptr<Sequential> encoder, head;  // of pictures
  TextTower sentences;
  const PairLoss& loss;
  LogitScale scale;
  Parameter bias;

  Network(const Settings& settings, const Init& init)
      : encoder(conv_encoder("encoder", 1, settings.width, init)),
        head(projection_head("head", 8 * settings.width, 256, 64, init)),
        sentences("sentences", {static_cast<int64_t>(vocabulary().size()), sentence_length()}, init),
        loss(pair_loss_named(settings.loss)),
        scale("scale", init, {.initial = loss.first_scale}),
        bias("bias", init.full({}, -10)) {
    has(*encoder);
    has(*head);
    has(sentences);
    has(scale);
    if (loss.biased) has(bias);
  }
};

void train(const Launch& rank, const CommandLine& line, const Settings& settings) {
  const Options& options = line.options();
  const FashionMnist data = load_data(settings.data, rank.comm);
  const Random key{static_cast<uint64_t>(options.seed)};
  const DType dtype = options.chosen_dtype();
  Network network(settings, {.key = key, .dtype = dtype, .device = rank.device});

  Batches batches(data.train.count(), settings.batch, key.seed);
  const int64_t steps_per_epoch = (data.train.count() + settings.batch - 1) / settings.batch;
  const int64_t steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch;
  const Schedule rate = one_cycle(settings.rate, 50, steps);
  Training training({{network.parameters(), AdamW{.weight_decay = 1e-4}}}, rank, options);
  Layer& encoder = training.layer("encoder", *network.encoder);
  Layer& head = training.layer("head", *network.head);
  Layer& sentences = training.layer("sentences", network.sentences);
  const auto of_pictures = [&](Tape& tape, const Tensor& images) {
    return l2_normalize(head(encoder(tape.constant(images.to(rank.device)))));
  };
  const auto of_sentences = [&](Tape& tape, const Tensor& tokens) {
    return l2_normalize(sentences(tape.constant(tokens.to(rank.device))));
  };

  const Batch test = take(data.test, samples_between(0, data.test.count()), dtype);
  // Of every test picture with every class's sentence.
  const auto scores_of_test = [&] {
    const Tensor pictures = features_of(test.images, of_pictures, rank.comm);
    return matmul(pictures, features_of(prompts(), of_sentences, rank.comm), Transpose::no, Transpose::yes).value();
  };
  const double untrained = accuracy(scores_of_test(), test.labels);

  Run run(rank, line,
          {.title = "Pictures and sentences of Fashion-MNIST",
           .charts = {{"Loss", {"loss"}}, {"Scale of the scores", {"scale"}}, {"Learning rate", {"rate"}}},
           .steps = steps,
           .steps_per_epoch = steps_per_epoch});
  TrainingState state(rank.comm);
  state.add(training.optimizer());
  const Metadata saved = run.begin(state, [&] { return Metadata{{"data", batches.position()}}; });
  if (!saved.empty()) batches.seek(saved.at("data"));

  const Between keep = settings.cached ? Between::features : Between::tapes;
  while (run.running()) {
    const Random step = key.fork(static_cast<uint64_t>(run.steps_done()));
    const LocalBatch batch = training.local_batch(batches.next());
    const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      const Batch pairs = run.data([&] { return take(data.train, samples, dtype); });
      return {of_pictures(tape, pairs.images), of_sentences(tape, describe(pairs.labels, samples, step))};
    };
    // This rank's share of the loss, which spans the pairs of all ranks.
    double scale_now = 0;
    const auto loss = [&](const Features& features, Communicator& group) {
      const Var &pictures = features[0], &texts = features[1];
      const Var scale = exp(precise(training.watch(network.scale.log_scale, pictures)));
      const Var bias = network.loss.biased ? precise(training.watch(network.bias, pictures)) : Var();
      scale_now = scale.value().item();
      return network.loss.share(pictures, texts, scale, bias, group);
    };
    const Tensor share = training.backward(batch, encode, loss, keep);
    const double now = rate(run.steps_done());
    training.step(now);
    training.change(network.scale.log_scale, [&] { network.scale.limit(); });
    run.step(batch.total, {{"loss", share.item()}}, {{"scale", scale_now}, {"rate", now}});
  }
  if (run.stopped()) return;

  const Tensor scores = scores_of_test();
  const Tensor nearest = top_k(transpose(scores), 10).indices.value().to(Device::cpu);
  run.picture("nearest", "The test pictures nearest to \"" + in_words(prompts()).front() + "\", and so on",
              grid(as_pixels(gather_rows(test.images, flatten(nearest, 0)).value()), 10));
  run.finish(
      {{"zero-shot test accuracy", percent(accuracy(scores, test.labels))}, {"before training", percent(untrained)}});
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Options options;
  options.epochs = 2;
  Settings settings;
  CommandLine line("train_clip", "Learns Fashion-MNIST's pictures together with sentences about them.", options);
  line.add("--loss", settings.loss, "of pictures and sentences", {"clip", "siglip"});
  line.add("--cached", settings.cached, "keep features only between forward and backward, and compute the rest again");
  line.add("--batch", settings.batch, "pictures in a step, on all ranks", {2, 60000});
  line.add("--rate", settings.rate, "the highest learning rate", {0, 10});
  line.add("--width", settings.width, "channels of the first convolution", {1, 1024});
  line.add("--data", settings.data, "folder of the four IDX files (default: $WEFT_DATA, then Debian's)");
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, line, settings); });
}
