#pragma once
// PyTorch in a child process that takes its turn between our own bursts: torch_steps.py, one thread.
#include <cstdio>

#include "bench/goal.h"
#include "bench/measure.h"

namespace weft::bench {

class Torch {
 public:
  // As a package manager leaves it, or with what makes it fastest: environment variables and the layout of the data.
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

// How many times as fast our step is as PyTorch's of that workload, in both settings.
std::vector<Check> against_torch(const Burst& ours, const std::string& workload, double bound_as_installed,
                                 double bound_strongest);

}  // namespace weft::bench
