// SPDX-License-Identifier: Apache-2.0
#pragma once
// PyTorch in a child process (torch_steps.py, one thread), which runs alternately with Weft's bursts.
#include <cstdio>

#include "bench/measuring/goal.h"
#include "bench/measuring/measure.h"

namespace weft::bench {

class Torch {
 public:
  // PyTorch as a package manager installs it, or with the environment variables and data layout that make it fastest.
  enum class Setting { as_installed, strongest };

  // Unavailable if $WEFT_PYTHON (python3 if unset) has no PyTorch.
  explicit Torch(Setting setting);
  ~Torch();
  Torch(const Torch&) = delete;
  Torch& operator=(const Torch&) = delete;

  const std::string& version() const { return version_; }
  Burst step(const std::string& workload);  // seconds per training step

 private:
  std::string answer();

  std::FILE *to_ = nullptr, *from_ = nullptr;
  int child_ = -1;
  std::string version_;
};

// The speed of our step relative to PyTorch's step of that workload, in both settings.
std::vector<Check> against_torch(const Burst& ours, const std::string& workload, double bound_as_installed,
                                 double bound_strongest);

}  // namespace weft::bench
