// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checks that values which should be equal on all ranks are equal.
#include <optional>
#include <span>
#include <string>

#include "weft/collectives/communicator.h"
#include "weft/engine/tensor/named_tensor.h"

namespace weft {

// Error on every rank if a value differs between ranks by a single bit. It names the first such value, and the first
// element and the ranks where it differs. Costs a checksum of each value and one small all_gather.
void expect_agreement(const std::string& what, std::span<const NamedTensor> values, Communicator& comm,
                      Site site = Site::here());

uint64_t checksum(const Tensor& x);  // of its type, its shape and its bits
uint64_t checksum(std::string_view text);

// Every rank's text, on every rank.
std::vector<std::string> all_texts(const std::string& mine, Communicator& comm, Site site);

// "ranks 0 and 2 WHAT: 'seed = 1' and 'seed = 2'", with the first rank whose text differs from rank 0's, and the first
// line that differs. Nothing if all texts are equal.
std::optional<std::string> first_different_line(const std::string& what, std::span<const std::string> texts);

// "element (1, 2) is 0.5 on rank 0 and 0.25 on rank 3". All ranks call this. Only these two ranks need to define x.
std::string first_difference(const Tensor& x, GroupRank first, GroupRank other, Communicator& comm, Site site);

}  // namespace weft
