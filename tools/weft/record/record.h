// SPDX-License-Identifier: Apache-2.0
#pragma once
// The last calls of all ranks of a job that has ended, from the job's file on each node: how its processes have ended,
// and who waited for whom.
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/collectives/transports/job/job.h"

namespace weft {

struct NodeRecord {
  std::string name;  // for errors
  std::shared_ptr<Job> job;
};

// From files that reports of a fault have named, or from folders of such files. An Error names a file that is no job's.
std::vector<NodeRecord> node_records(const std::vector<std::filesystem::path>& places);

// With so many calls of each rank.
std::string printed_record(const std::vector<NodeRecord>& nodes, int calls);

}  // namespace weft
