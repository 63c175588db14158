// SPDX-License-Identifier: Apache-2.0
#pragma once
// --init: a network that starts from the weights in a file, in place of random ones.
#include <filesystem>

#include "apps/shared/launch/options.h"
#include "apps/shared/run/run.h"
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/module.h"

namespace weft {

std::vector<Parameter*> tensors_of(const Module& network);  // parameters and buffers

void add_init(CommandLine& line, std::string& file);

// What is initialized from the tensors of a file.
struct InitialTensors {
  std::string required;                // a module, such as "encoder", whose tensors all have to be in the file
  std::vector<Parameter*> all;         // its own, and others
  std::vector<Parameter*> state = {};  // some of these that belong together: they are taken only if all of them fit
};

struct TakenTensors {
  bool state = false;  // whether there is a state, and it was taken
  std::string summary;
};

// Copies the tensors of a file whose names and shapes agree, with the type that they have here, and says what was taken
// and what was not. The file is an export, a checkpoint of any program, or a run's folder. Only rank 0 reads it.
// MalformedInput, with the first difference, if a required tensor does not agree, or none does.
TakenTensors take_weights(const std::filesystem::path& from, const InitialTensors& tensors, Communicator& comm);

// The same if `from` is not empty, as the program's --init. Returns whether the state was taken.
inline bool start_from(const std::filesystem::path& from, const InitialTensors& tensors, Run& run, Communicator& comm) {
  if (from.empty()) return false;
  const TakenTensors taken = take_weights(from, tensors, comm);
  run.note(taken.summary);
  return taken.state;
}

}  // namespace weft
