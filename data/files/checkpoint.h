// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checkpoints: named tensors and metadata from which a training run can resume. A folder has one safetensors file per
// kept step. docs/checkpoints.md has the guarantees.
//
//   const NamedTensors state = ...;                         // handles to the parameters, the optimizer's state, ...
//   Latest latest = latest_checkpoint("run");
//   if (latest.file) load_checkpoint(*latest.file, state);  // in place
//   save_checkpoint("run", step, state, {{"seed", "1"}});   // on one rank, with whole tensors
#include <cstdint>
#include <optional>

#include "weft/data/files/safetensors.h"

namespace weft {

using NamedTensors = std::vector<NamedTensor>;

struct NotFinite : Error {
  using Error::Error;
};

// Writes folder/step-000120.safetensors and returns its path. When this returns, the checkpoint survives the end of the
// process and a loss of power. Throws NotFinite if a value is not finite, since such a checkpoint would be the latest
// but useless. Adds "step" to the metadata, keeps the last `generations` checkpoints and the best one, and removes
// older ones and the temporary files of killed writers. Throws if the folder has a valid checkpoint of a later step,
// since that would remain the latest; a damaged later one is renamed to *.damaged.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, int64_t step,
                                      std::span<const NamedTensor> tensors, Metadata metadata, int generations = 2);
// The same, but requests the tensors one by one: calls `get` once for each, in order.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, int64_t step,
                                      std::span<const TensorOutline> tensors, const TensorSource& get,
                                      Metadata metadata, int generations = 2);

// Metadata may say how good a state is: "83.4 k-NN accuracy", a number, the more the better, and of what. The best
// checkpoint of a folder has the largest score of the kind that the latest has; of equal ones it is the later.
constexpr const char* score_key = "score";
std::string score_words(double score, const std::string& of);

struct Latest {
  std::optional<SafetensorsFile> file;  // empty if there is no valid checkpoint
  int64_t step = 0;
  std::vector<std::string> damaged;  // the error of each later file
};
// The latest valid checkpoint of a folder, which may be empty or missing. All checksums have been verified, and all
// values are finite.
Latest latest_checkpoint(const std::filesystem::path& folder);

// The checkpoint that a path names, verified in the same way: a file; the latest of a folder, as FOLDER or FOLDER/last;
// or the best, as FOLDER/best. The folder may be a run's, with its checkpoints in a folder of that name. MissingInput
// if none is there.
Latest checkpoint_at(const std::filesystem::path& path);
bool may_be_checkpoint(const std::filesystem::path& path);  // whether the file or the folder is there

// Opens a checkpoint and verifies it in the same way. Error if it is not valid or has no checksums.
SafetensorsFile open_checkpoint(const std::filesystem::path& file);
// The step in the checkpoint's metadata.
int64_t step_in(const SafetensorsFile& checkpoint);

enum class Surplus : uint8_t { refused, ignored };  // tensors of the file that are not requested

// Fills the tensors in place, so that all owners of their memory have the new values. If the file does not fit, one
// Error lists every tensor that is missing, has another shape or type, or is not requested, and nothing is changed.
void load_checkpoint(const SafetensorsFile& file, std::span<const NamedTensor> into,
                     Surplus surplus = Surplus::refused);
// The same, but calls `put` with each tensor in order, on the CPU.
void load_checkpoint(const SafetensorsFile& file, std::span<const TensorOutline> tensors, const TensorSink& put,
                     Surplus surplus = Surplus::refused);

}  // namespace weft
