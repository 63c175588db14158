// SPDX-License-Identifier: Apache-2.0
#pragma once
// The last calls of all ranks of a job that has ended, from the files that reports of a fault have named, one of each
// node; and who waited for whom.
#include <filesystem>
#include <string>
#include <vector>

namespace weft {

// Of files, or of folders of such files, with so many calls of each rank. An Error names a file that is no job's.
std::string printed_record(const std::vector<std::filesystem::path>& places, int calls);

}  // namespace weft
