#pragma once
// Whether values that should be equal on all ranks are.
#include <optional>
#include <span>
#include <string>

#include "collectives/communicator.h"
#include "engine/named.h"

namespace weft {

// Error on every rank if one of these differs between ranks in a single bit: it names the first that does, and the
// first element and the ranks where it does. Costs a checksum of each and one small exchange.
void expect_agreement(const std::string& what, std::span<const NamedTensor> values, Communicator& comm,
                      Site site = Site::here());

uint64_t checksum(const Tensor& x);  // of its type, its shape and its bits
uint64_t checksum(std::string_view text);

// Every rank's text, on every rank.
std::vector<std::string> all_texts(const std::string& mine, Communicator& comm, Site site);

// "ranks 0 and 2 WHAT: 'seed = 1' and 'seed = 2'": the first rank whose text is not rank 0's, and the first line that
// differs. Nothing if all texts are equal.
std::optional<std::string> first_different_line(const std::string& what, std::span<const std::string> texts);

// "element (1, 2) is 0.5 on rank 0 and 0.25 on rank 3". All ranks call it; x may be undefined on others than these two.
std::string first_difference(const Tensor& x, GroupRank first, GroupRank other, Communicator& comm, Site site);

}  // namespace weft
