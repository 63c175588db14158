// SPDX-License-Identifier: Apache-2.0
#pragma once
// --init: a network that starts from the weights in a file, in place of random ones.
#include <filesystem>

#include "apps/shared/run/run.h"
#include "weft/collectives/communicator.h"
#include "weft/engine/nn/module.h"

namespace weft {

// Copies the tensors of a file whose names and shapes agree to the parameters, with their type, and says what was taken
// and what was not. The file is an export, a checkpoint of any program, or a run's folder. Only rank 0 reads it.
// MalformedInput, with the first difference, if a tensor of an encoder does not agree, or none does.
std::string take_weights(const std::filesystem::path& from, const std::vector<Parameter*>& parameters,
                         Communicator& comm);

// The same if `from` is not empty, as the program's --init.
inline void start_from(const std::filesystem::path& from, const std::vector<Parameter*>& parameters, Run& run,
                       Communicator& comm) {
  if (!from.empty()) run.note(take_weights(from, parameters, comm));
}

}  // namespace weft
