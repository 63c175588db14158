// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pictures that the programs learn, the same on every rank.
#include "apps/shared/launch/options.h"
#include "weft/collectives/communicator.h"
#include "weft/data/pictures.h"
#include "weft/models/encoders.h"

namespace weft {

// Reads what --data names, brings all pictures to one size, and keeps them in memory once per process. Throws a Fault
// on all ranks if they have read different data, for example because one node has other files at the same path, and
// WrongOption if the pictures do not fit into --cache or are fewer than --batch.
Pictures load_data(const Options& options, Communicator& comm);

// Throws unless there are training pictures for a batch.
void must_fill_a_batch(const Pictures& pictures, const Options& options);

// Every n-th picture, `most` of them at most, since files are often sorted by class.
std::vector<int64_t> every_nth(const LabelledImages& pictures, int64_t most);

// The encoder for these pictures.
EncoderChoice fitted(EncoderChoice encoder, const Pictures& pictures);

// Throws WrongOption unless height and width of the pictures are multiples of `by`.
void must_be_multiples(const Pictures& pictures, int64_t by);

// Whether there are test pictures whose classes can be predicted.
bool can_be_classified(const Pictures& pictures);

}  // namespace weft
