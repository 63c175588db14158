// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/encoder/initial_weights.h"

#include <algorithm>

#include "apps/shared/encoder/encoder_file.h"
#include "apps/shared/launch/launch.h"
#include "weft/engine/text/words.h"

namespace weft {
namespace {

// Why a tensor of the file is not the parameter's value; empty if it is.
std::string difference(const SafetensorsFile& file, const Parameter& parameter) {
  const SafetensorsFile::Entry* entry = file.find(parameter.name);
  if (!entry) return parameter.name + " is not in the file";
  if (entry->shape == parameter.value.shape() && is_floating(entry->dtype)) return "";
  return parameter.name + " is " + text(entry->dtype) + " " + text(entry->shape) + " in the file, not " +
         text(parameter.value.dtype()) + " " + text(parameter.value.shape());
}

bool has(const std::vector<Parameter*>& some, const Parameter* parameter) {
  return std::find(some.begin(), some.end(), parameter) != some.end();
}

// Those that the file has.
std::vector<Parameter*> those_in(const SafetensorsFile& file, const InitialTensors& tensors) {
  std::vector<Parameter*> found;
  std::string first;
  for (Parameter* parameter : tensors.all) {
    const std::string what = difference(file, *parameter);
    if (what.empty()) found.push_back(parameter);
    if (first.empty()) first = what;
    if (!what.empty() && parameter->name.starts_with(tensors.required + "."))
      throw MalformedInput(file.path().string() + ": its " + tensors.required + " is another one: " + what);
  }
  if (found.empty()) throw MalformedInput(file.path().string() + ": none of its tensors fits: " + first);
  const auto is_found = [&](const Parameter* parameter) { return has(found, parameter); };
  if (!std::all_of(tensors.state.begin(), tensors.state.end(), is_found))
    std::erase_if(found, [&](const Parameter* parameter) { return has(tensors.state, parameter); });
  return found;
}

std::string summary(const SafetensorsFile& file, const std::vector<Parameter*>& parameters, size_t taken) {
  constexpr size_t told = 3;
  const size_t left = parameters.size() - taken;
  std::string names;
  size_t count = 0;
  for (const Parameter* parameter : parameters)
    if (const std::string what = difference(file, *parameter); !what.empty() && count++ < told)
      names += (names.empty() ? "" : ", ") + what;
  if (left > told) names += " and " + text(left - told) + " more";
  return "starts from the weights of " + file.path().string() + ": " + text(taken) + " of " + text(parameters.size()) +
         " tensors" + (left > 0 ? "; the others are random: " + names : "");
}

}  // namespace

std::vector<Parameter*> tensors_of(const Module& network) {
  std::vector<Parameter*> all = network.parameters(), buffers = network.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  return all;
}

void add_init(CommandLine& line, std::string& file) {
  line.add("--init", file,
           "begin with the weights in a file: an export, a checkpoint, or a run's folder for its latest, FOLDER/best");
}

TakenTensors take_weights(const std::filesystem::path& from, const InitialTensors& tensors, Communicator& comm) {
  std::optional<SafetensorsFile> file;
  // Rank 0 tells the others which tensors it has found, and what to say about it.
  const Metadata told = TrainingState(comm).load([&](const TensorSink&) {
    return alone([&] {
      file.emplace(open_weights(from));
      Metadata words;
      const std::vector<Parameter*> found = those_in(*file, tensors);
      for (const Parameter* parameter : found) words["take " + parameter->name] = "";
      words["summary"] = summary(*file, tensors.all, found.size());
      return words;
    });
  });
  std::vector<Parameter*> taken;
  for (Parameter* parameter : tensors.all)
    if (told.count("take " + parameter->name)) taken.push_back(parameter);
  TrainingState weights(comm);
  weights.add(taken);
  weights.load([&](const TensorSink& put) {
    alone([&] {
      for (size_t i = 0; i < taken.size(); ++i) put(i, file->read(taken[i]->name).to(taken[i]->value.dtype()));
    });
    return Metadata();
  });
  return {!tensors.state.empty() && has(taken, tensors.state.front()), told.at("summary")};
}

}  // namespace weft
