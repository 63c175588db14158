// SPDX-License-Identifier: Apache-2.0
#pragma once
// The modes of other libraries that this folder has, by name, with the signature of each gradient (docs/losses.md,
// "Signatures"; S0 is correct). See gather.h for what this is for.
#include <span>

#include "tests/emulated/gather.h"

namespace weft::emulated {

inline constexpr int cached_passes = 2;  // of the mode with cached features
inline constexpr double nt_xent_temperature = 0.5;
inline constexpr double inverse_temperature = 1, diversity = 1;  // of the modes of LFQ

struct Mode {
  const char* name;
  const char* upstream;   // the library, its versions and options
  const char* reports;    // issues and pull requests; empty if there are none
  const char* signature;  // of the gradients that reach a reducer that averages
  const char* loss;       // what the gradients should be those of
  // This rank's loss of its features by tower, (b, d) each, and of the loss's shared scalars.
  Var (*loss_of_rank)(std::span<const Var> features, std::span<const Var> scalars, Communicator& comm);
};

const std::vector<Mode>& emulated_modes();

}  // namespace weft::emulated
