// SPDX-License-Identifier: Apache-2.0
#pragma once
// Functions of statistics over ranks as other libraries have them. Their reducer averages: each rank returns its own
// loss. See gather.h for what this is for.
#include "tests/emulated/gather.h"

namespace weft::emulated {

// How LFQ averages its assignments over ranks: by an all_reduce that the tape does not know, or by one whose result is
// discarded, so that each rank has 1/W of its own.
enum class Averaging : uint8_t { raw, discarded };

// The entropy loss of lookup-free quantization, mean H(p(. | x)) - diversity H(mean p(. | x)), for tokens x (n, bits).
// The means over ranks are means of each rank's mean.
Var lookup_free_entropy(const Var& tokens, double inverse_temperature, double diversity, Averaging averaging,
                        Communicator& comm);

// A metric on states of all ranks, of which the own one is put back with its gradient.
Var root_mean_squared_error(const Var& predictions, const Var& targets, Communicator& comm);

}  // namespace weft::emulated
