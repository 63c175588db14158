// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/encoder/encoder_file.h"

#include <set>

#include "apps/shared/encoder/initial_weights.h"
#include "apps/shared/launch/launch.h"
#include "weft/data/files/checkpoint.h"
#include "weft/data/files/durable_file.h"

namespace weft {

namespace fs = std::filesystem;

namespace {

// The averages of the weights over the steps, if the file has them (--average), as the training's own probes.
std::vector<TensorOutline> best_in(const SafetensorsFile& file, std::vector<TensorOutline> tensors) {
  for (TensorOutline& tensor : tensors)
    if (const auto* average = file.find(tensor.name + ".average")) {
      tensor.name += ".average";
      tensor.dtype = average->dtype;
    }
  return tensors;
}

}  // namespace

void EncoderFiles::add_to(CommandLine& line) {
  add_init(line, init);
  line.add("--export", exported, "file for the trained encoder of pictures, in safetensors (docs/export.md)");
}

SafetensorsFile open_weights(const fs::path& path) {
  if (!may_be_checkpoint(path)) throw MissingInput(path.string() + ": there is no such file");
  if (!fs::exists(path) || fs::is_directory(path)) return std::move(*checkpoint_at(path).file);
  SafetensorsFile file(path);
  file.verify(true);
  return file;
}

TrainedEncoder read_encoder(const fs::path& path, Device device, Communicator& comm) {
  std::optional<SafetensorsFile> file;
  const Metadata words = TrainingState(comm).load([&](const TensorSink&) {
    return alone([&] {
      file.emplace(open_weights(path));
      Metadata read = file->metadata();
      encoder_in(read, file->path().string());
      read["file"] = file->path().string();
      return read;
    });
  });
  TrainedEncoder trained{encoder_in(words, words.at("file")), nullptr, nullptr, words.at("file")};
  trained.network = trained.about.make(device);
  trained.matcher = trained.about.make_matcher(device);
  TrainingState weights(comm);
  trained.add_to(weights);
  weights.load([&](const TensorSink& put) {
    const auto as_type = [&](size_t i, const Tensor& whole) { put(i, whole.to(weights.tensors()[i].dtype)); };
    alone([&] { load_checkpoint(*file, best_in(*file, weights.tensors()), as_type, Surplus::ignored); });
    return Metadata();
  });
  return trained;
}

void TrainedEncoder::add_to(TrainingState& state) {
  state.add(tensors_of(*network));
  if (matcher) state.add(tensors_of(*matcher));
}

void expect_room_for_export(const fs::path& file, Communicator& comm) {
  if (file.empty() || comm.rank().value != 0) return;
  alone([&] {
    if (fs::is_directory(file)) throw OutputFailure(file.string() + ": cannot be written: it is a folder");
    const DurableFile not_committed(file);
  });
}

void export_encoder(const fs::path& file, TrainingState& state, const EncoderDescription& about) {
  if (file.empty()) return;
  std::set<std::string> names;
  const auto take = [&](const Module& module) {
    for (const Parameter* tensor : tensors_of(module)) names.insert(tensor->name);
  };
  take(*about.make(Device::cpu));
  if (const auto matcher = about.make_matcher(Device::cpu)) take(*matcher);
  std::vector<size_t> places;
  std::vector<TensorOutline> outlines;
  for (size_t i = 0; i < state.tensors().size(); ++i)
    if (names.count(state.tensors()[i].name)) places.push_back(i), outlines.push_back(state.tensors()[i]);
  require(outlines.size() == names.size(), "export: the state has only ", outlines.size(), " of the encoder's ",
          names.size(), " tensors");
  state.save([&](const TensorSource& get) {
    alone([&] {
      write_safetensors(
          file, outlines, [&](size_t i) { return get(places[i]); }, in_words(about));
    });
  });
}

}  // namespace weft
