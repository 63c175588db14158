// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/encoder/initial_weights.h"

#include <sstream>

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

bool is_of_encoder(const Parameter& parameter) { return parameter.name.rfind("encoder.", 0) == 0; }

// The parameters that the file has.
std::vector<Parameter*> those_in(const SafetensorsFile& file, const std::vector<Parameter*>& parameters) {
  std::vector<Parameter*> found;
  std::string first;
  for (Parameter* parameter : parameters) {
    const std::string what = difference(file, *parameter);
    if (what.empty()) found.push_back(parameter);
    if (first.empty()) first = what;
    if (!what.empty() && is_of_encoder(*parameter))
      throw MalformedInput(file.path().string() + ": its encoder is another one: " + what);
  }
  if (found.empty()) throw MalformedInput(file.path().string() + ": none of its tensors fits: " + first);
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

std::string take_weights(const std::filesystem::path& from, const std::vector<Parameter*>& parameters,
                         Communicator& comm) {
  std::optional<SafetensorsFile> file;
  // Rank 0 tells the others which parameters it has found, and what to say about it.
  const Metadata told = TrainingState(comm).load([&](const TensorSink&) {
    return alone([&] {
      file.emplace(open_weights(from));
      Metadata words;
      const std::vector<Parameter*> found = those_in(*file, parameters);
      for (const Parameter* parameter : found) words["take " + parameter->name] = "";
      words["summary"] = summary(*file, parameters, found.size());
      return words;
    });
  });
  std::vector<Parameter*> taken;
  for (Parameter* parameter : parameters)
    if (told.count("take " + parameter->name)) taken.push_back(parameter);
  TrainingState weights(comm);
  weights.add(taken);
  weights.load([&](const TensorSink& put) {
    alone([&] {
      for (size_t i = 0; i < taken.size(); ++i) put(i, file->read(taken[i]->name).to(taken[i]->value.dtype()));
    });
    return Metadata();
  });
  return told.at("summary");
}

}  // namespace weft
