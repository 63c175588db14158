#pragma once
// What a training run needs to go on: named tensors and a few words, one safetensors file per kept step in a folder.
// docs/checkpoints.md has what is promised.
//
//   const NamedTensors state = ...;                         // handles to the parameters, the optimizer's state, ...
//   Latest latest = latest_checkpoint("run");
//   if (latest.file) load_checkpoint(*latest.file, state);  // in place
//   save_checkpoint("run", step, state, {{"seed", "1"}});   // by one rank, with whole tensors
#include <cstdint>
#include <optional>

#include "data/safetensors.h"

namespace weft {

using NamedTensors = std::vector<NamedTensor>;

struct NotFinite : Error {
  using Error::Error;
};

// Writes folder/step-000120.safetensors and returns its path. When this returns, that checkpoint is acknowledged: it
// survives the end of the process and a loss of power. Refused, as NotFinite, if a number is not finite: it would be
// the latest, and of no use. Keeps the last `generations`, removes those before, and what
// killed writers have left. Adds "step" to the metadata. Refused if the folder holds a sound checkpoint of a later
// step, since that would be the latest and not this one; a damaged one is renamed to *.damaged.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, int64_t step,
                                      std::span<const NamedTensor> tensors, Metadata metadata, int generations = 2);
// The same of tensors that are asked for in their order, each once and when its turn comes.
std::filesystem::path save_checkpoint(const std::filesystem::path& folder, int64_t step,
                                      std::span<const TensorOutline> tensors, const TensorSource& get,
                                      Metadata metadata, int generations = 2);

struct Latest {
  std::optional<SafetensorsFile> file;  // none if there is no sound checkpoint
  int64_t step = 0;
  std::vector<std::string> damaged;  // what was wrong with each later one
};
// The latest sound checkpoint of a folder, which may be empty or missing. All its bytes have been checked, and all its
// numbers are finite.
Latest latest_checkpoint(const std::filesystem::path& folder);

// A checkpoint that must be as sound, with checksums; Error if not.
SafetensorsFile open_checkpoint(const std::filesystem::path& file);
// Of which step it says that it is.
int64_t step_in(const SafetensorsFile& checkpoint);

enum class Surplus : uint8_t { refused, ignored };  // tensors of a file that are not asked for

// Fills the tensors in place, so that whoever shares their memory sees it. If the file does not fit, one Error lists
// every tensor that is missing, of another shape or type, or not asked for, and nothing is changed.
void load_checkpoint(const SafetensorsFile& file, std::span<const NamedTensor> into,
                     Surplus surplus = Surplus::refused);
// The same for tensors that are handed over in their order, on the CPU.
void load_checkpoint(const SafetensorsFile& file, std::span<const TensorOutline> tensors, const TensorSink& put,
                     Surplus surplus = Surplus::refused);

}  // namespace weft
