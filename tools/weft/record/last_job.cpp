// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/record/last_job.h"

#include <algorithm>
#include <cstring>
#include <iostream>

#include "tools/weft/record/record.h"
#include "weft/collectives/communicator.h"
#include "weft/collectives/transports/factory.h"
#include "weft/collectives/transports/job/ended_jobs.h"
#include "weft/data/files/input_file.h"

namespace weft {
namespace {

// The logs of the job that began last, from one rank of each node, on rank 0.
std::vector<NodeRecord> gathered(const std::shared_ptr<Job>& here, bool sends, Communicator& comm) {
  const Rows all = comm.rows_of(here ? here->started() : 0);
  const int64_t last = *std::max_element(all.begin(), all.end());
  std::span<const std::byte> logs;
  if (sends && here && here->started() == last) logs = here->logs();
  const Rows sizes = comm.rows_of(static_cast<int64_t>(logs.size()));
  Tensor mine = Tensor::zeros({static_cast<int64_t>(logs.size())}, DType::u8);
  if (!logs.empty()) std::memcpy(mine.mutate(), logs.data(), logs.size());
  const Tensor bytes = comm.gather_v(mine, sizes, {0});
  std::vector<NodeRecord> nodes;
  const auto* next = bytes.data<std::byte>();
  for (int r = 0; r < comm.size() && comm.rank().value == 0; ++r) {
    const auto size = static_cast<size_t>(sizes[static_cast<size_t>(r)]);
    const std::string name = "the record of rank " + text(r) + "'s node";
    if (size > 0) nodes.push_back({name, Job::recorded(std::span(next, size), name)});
    next += size;
  }
  return nodes;
}

}  // namespace

int print_last_job(int argc, char** argv, int calls) {
  const std::shared_ptr<Job> here = last_ended_job();  // a session removes files that no report has named
  return run_session(argc, argv, [&](Session& session) {
    Communicator comm(connect(session));
    const std::vector<NodeRecord> nodes = gathered(here, session.rank_on_node() == 0, comm);
    if (comm.rank().value > 0) return 0;
    if (nodes.empty()) {  // no fault of this job, which would report one
      std::cerr << "weft: record: no job has left a record here; under mpiexec it is of all its nodes\n";
      return 66;
    }
    std::cout << printed_record(nodes, calls) << std::flush;
    return 0;
  });
}

}  // namespace weft
