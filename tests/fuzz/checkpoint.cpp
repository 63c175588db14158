// SPDX-License-Identifier: Apache-2.0
// A checkpoint of step 7 in a run's folder, for a model with three tensors.
#include "weft/data/files/checkpoint.h"

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sound_sums.h"
#include "tests/support/scratch_folder.h"
#include "weft/data/idx.h"  // MalformedInput

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile place;
  static const ScratchFolder folder;
  static const bool linked = symlink(place.path().c_str(), (folder / "step-000007.safetensors").c_str()) == 0;
  must(linked, "the folder has a checkpoint");
  place.hold(with_sound_sums(bytes));

  const Latest latest = latest_checkpoint(folder.path);
  if (!latest.file) throw MalformedInput(latest.damaged.at(0));
  must(latest.step == 7, "the step is that of the name");
  const NamedTensors model = {{"weight", Tensor::zeros({2, 3})},
                              {"count", Tensor::zeros({}, DType::i64)},
                              {"half", Tensor::zeros({4}, DType::bf16)}};
  load_checkpoint(*latest.file, model);
}

}  // namespace weft::fuzz
