// SPDX-License-Identifier: Apache-2.0
// Measures what a trained encoder has learnt: how well the classes of a data set can be predicted from its features.
//
// The encoder comes from an export or a checkpoint, and any number of ranks may have trained it. Its features can be
// taken along as a NumPy array, and the encoder of a checkpoint as an export (docs/export.md).
#include "apps/shared/captions/sentences.h"
#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/evaluation/features.h"
#include "apps/shared/evaluation/few_labels.h"
#include "apps/shared/evaluation/picture_features.h"
#include "apps/shared/launch/launch.h"
#include "apps/shared/run/data_set.h"
#include "apps/shared/run/progress.h"
#include "weft/data/files/input_file.h"
#include "weft/data/numpy/npy.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

struct Settings : Options {
  std::string model = "runs/train_contrastive", exported, embeddings, sentences;
  int64_t labels_per_class = 10, draws = 5, neighbours = 20;
};

void expect_same_pictures(const EncoderChoice& encoder, const Pictures& data) {
  const Shape& shape = data.train.images.shape();
  const Shape wanted = {encoder.height, encoder.across, encoder.channels}, is = {shape[1], shape[2], shape[3]};
  if (is != wanted)
    throw MalformedInput(data.folder.string() + ": its pictures are " + text(is) +
                         ", as height, width and channels, but the encoder was trained on " + text(wanted));
}

// The features of all ranks, in the order of the pictures.
void write_embeddings(const std::filesystem::path& file, const Tensor& mine, Communicator& comm) {
  if (file.empty()) return;
  const Tensor all = comm.all_gather_v(mine, comm.rows_of(mine.shape()[0])).to(Device::cpu);
  if (comm.rank().value == 0) alone([&] { write_npy(file, all.dtype() == DType::bf16 ? all.to(DType::f32) : all); });
}

// Tokens of a sentence for each class.
Tensor sentences_in(const std::string& file, const Pictures& data, const Vocabulary& words) {
  if (file.empty()) return words.tokens(prompts_for(data));
  const InputFile opened(file);
  std::string all(opened.bytes(), '\0');
  opened.read(0, all.data(), all.size());
  std::istringstream lines(all);
  std::vector<std::string> sentences;
  for (std::string line; std::getline(lines, line); sentences.push_back(line))
    if (!words.knows(line))
      opened.malformed("line " + text(sentences.size() + 1) + ": the encoder knows no word of it");
  if (std::ssize(sentences) != data.count_of_classes())
    opened.malformed(text(sentences.size()) + " lines for " + text(data.count_of_classes()) + " classes");
  return words.tokens(sentences);
}

// The fraction of test pictures whose class has the nearest sentence.
double zero_shot(const Pictures& data, const TrainedEncoder& trained, const Init& init, const std::string& file,
                 Communicator& comm) {
  const auto of_pictures = [&](Tape& tape, const Tensor& images) {
    return l2_normalize((*trained.matcher->head)((*trained.network)(tape.constant(images.to(init.device)))));
  };
  const auto of_sentences = [&](Tape& tape, const Tensor& tokens) {
    return l2_normalize(trained.matcher->sentences(tape.constant(tokens.to(init.device))));
  };
  const Tensor texts = encoded(sentences_in(file, data, *trained.about.vocabulary), of_sentences, comm);
  const Batch test = take(data.test, samples_between(0, data.test.count()), init.dtype);
  const Tensor pictures = encoded(test.images, of_pictures, comm);
  return accuracy(matmul(pictures, texts, Transpose::no, Transpose::yes).value(), data.test.labels);
}

std::vector<Figure> measure(const Pictures& data, TrainedEncoder& trained, const Init& init, const Settings& settings,
                            Communicator& comm) {
  std::vector<Figure> figures;
  if (trained.matcher)
    figures.push_back(in_percent("zero-shot", zero_shot(data, trained, init, settings.sentences, comm)));
  const int64_t classes = data.count_of_classes(), neighbours = std::min(settings.neighbours, data.train.count());
  for (Layer* encoder : {static_cast<Layer*>(trained.network.get()), static_cast<Layer*>(nullptr)}) {
    const std::string on = encoder ? "" : " on raw pixels";
    const LabelledFeatures train = features_of(data.train, encoder, init, comm),
                           test = features_of(data.test, encoder, init, comm);
    if (encoder) write_embeddings(settings.embeddings, test.rows, comm);
    figures.push_back(in_percent("linear probe" + on, linear_probe(train.clone(), test.clone(), classes, comm)));
    if (encoder)
      figures.push_back(in_percent(text(neighbours) + " nearest neighbours",
                                   nearest_neighbours(train, test, classes, neighbours, comm)));
    if (settings.labels_per_class == 0) continue;
    const Draws few = few_label_probe(train.clone(), data.train.labels, test.clone(), classes,
                                      settings.labels_per_class, settings.draws, init.key, comm);
    const std::string name = "linear probe" + on + ", " + text(settings.labels_per_class) + " labels per class";
    figures.push_back(in_percent(name, few.mean));
    figures.push_back(in_percent("deviation over " + text(settings.draws) + " draws" + on, few.deviation));
  }
  return figures;
}

void evaluate(const Launch& rank, const Settings& settings) {
  for (const std::string& file : {settings.exported, settings.embeddings}) expect_room_for_export(file, rank.comm);
  TrainedEncoder trained = read_encoder(settings.model, rank.device, rank.comm);
  const EncoderDescription& about = trained.about;
  if (!settings.sentences.empty() && !trained.matcher)
    throw WrongOption("--sentences: " + trained.file + " was trained without sentences");
  Init init = settings.init(rank.device);
  init.dtype = about.dtype;
  Progress progress(rank.output, Progress::style_for(rank.output, settings.quiet, settings.json),
                    rank.comm.rank().value);
  progress.note(trained.file + ": encoder " + about.encoder.network + " with " + text(about.encoder.features()) +
                " features, trained by " + about.method + " on " + about.data);
  if (!settings.exported.empty()) {
    TrainingState state(rank.comm);
    trained.add_to(state);
    export_encoder(settings.exported, state, about);
    progress.note("exported to " + settings.exported);
  }
  Options of_data = settings;
  if (of_data.size == 0) of_data.size = about.encoder.height;
  const Pictures data = load_data(of_data, rank.comm);
  for (const std::string& note : data.notes) progress.note(note);
  for (const std::string& warning : data.warnings) progress.warn(warning);
  expect_same_pictures(about.encoder, data);
  progress.note("test accuracy on " + data.name + ", " + grouped(data.train.count()) + " training and " +
                grouped(data.test.count()) + " test pictures:");
  if (can_be_classified(data)) return progress.finish_table(measure(data, trained, init, settings, rank.comm));
  progress.note("there are no test pictures with classes, so there is nothing to measure");
  write_embeddings(settings.embeddings, features_of(data.test, trained.network.get(), init, rank.comm).rows, rank.comm);
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  Settings settings;
  settings.has_run = false;
  settings.batch = 1;  // any number of pictures will do
  CommandLine line("evaluate", "Measures how well classes can be predicted from the features of a trained encoder.",
                   settings);
  line.keep_only({"--ranks", "--device", "--data", "--size", "--cache", "--seed", "--timeout", "--fast-reductions",
                  "--tf32", "--trace", "--quiet", "--json"});
  line.add("--model", settings.model,
           "the encoder: an export, a checkpoint, a run's folder for its latest, or FOLDER/best");
  line.add("--neighbours", settings.neighbours, "training pictures that vote for the class of a test picture",
           {1, 1000});
  line.add("--labels-per-class", settings.labels_per_class,
           "training labels of each class for the probe that has seen few; 0: leave it out", {0, 100000});
  line.add("--draws", settings.draws, "how often these labels are drawn; the result is a mean", {1, 1000});
  line.add("--sentences", settings.sentences,
           "file with a sentence for each class, one per line in the order of the classes, if the encoder was trained "
           "with sentences (default: this is a picture of one CLASS)");
  line.add("--embeddings", settings.embeddings, "file for the features of the test pictures, as a NumPy array");
  line.add("--export", settings.exported, "file for the encoder, in safetensors (docs/export.md)");
  return launch(line, argc, argv, [&](const Launch& rank) { evaluate(rank, settings); });
}
