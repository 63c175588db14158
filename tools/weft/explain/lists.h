// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <vector>

namespace weft::verify {

// "0, 1 and 2"
std::string listed(const std::vector<std::string>& all, const std::string& last = " and ");
// What is said of each rank, where it is not the same: "on ranks 0 and 1 ...; on rank 2 ..."
std::string told_by_rank(const std::vector<std::string>& of_ranks);

}  // namespace weft::verify
