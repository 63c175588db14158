// SPDX-License-Identifier: Apache-2.0
// The config.toml of the run that wrote a checkpoint, which is compared with that of the resumed run.
#include "apps/shared/run/run_folder.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/scratch_folder.h"

namespace weft::fuzz {

void read(std::string_view bytes) {
  static const MemoryFile config;
  static const ScratchFolder folder;
  static const bool linked = symlink(config.path().c_str(), (folder / "config.toml").c_str()) == 0;
  must(linked, "the folder has a configuration");
  config.hold(bytes);
  const std::string mine = "epochs = 3\nloss = \"clip\"\nout = \"here\"\nrate = 0.1\nseed = 7\n";
  must(changes_since(folder / "checkpoints/step-000007.safetensors", mine).size() <= 4, "--out is no change");
}

}  // namespace weft::fuzz
