// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trained encoder in a file: written by --export, or part of a checkpoint. Only rank 0 accesses files.
#include <filesystem>

#include "apps/shared/encoder/description.h"
#include "apps/shared/launch/options.h"
#include "weft/data/files/safetensors.h"
#include "weft/optim/state.h"

namespace weft {

// The options of a program that trains an encoder. Empty: none.
struct EncoderFiles {
  std::string init, exported;
  void add_to(CommandLine& line);
};

// The file that a path names: an export, or a checkpoint, as checkpoint_at takes it. It is verified.
SafetensorsFile open_weights(const std::filesystem::path& path);

struct TrainedEncoder {
  EncoderDescription about;
  std::unique_ptr<Sequential> network;
  std::unique_ptr<Matcher> matcher;  // if it was trained with sentences

  std::string file;  // that it was read from
  void add_to(TrainingState& state);
};
// The same on every rank.
TrainedEncoder read_encoder(const std::filesystem::path& path, Device device, Communicator& comm);

// Throws an OutputFailure if the file cannot be written. Changes nothing, and does nothing if the path is empty.
void expect_room_for_export(const std::filesystem::path& file, Communicator& comm);

// Writes the encoder of a state and its description, whole or not at all; nothing if the path is empty. Called on all
// ranks.
void export_encoder(const std::filesystem::path& file, TrainingState& state, const EncoderDescription& about);

}  // namespace weft
