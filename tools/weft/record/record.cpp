// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/record/record.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "weft/collectives/transports/job/job.h"
#include "weft/data/files/input_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct RankRecord {
  int rank;
  Job::Log log;
};

// Whether a call from a file, which anybody may have written, has a text.
bool has_text(const Call& call) {
  return call.verb <= Verb::finalize && call.dtype <= DType::u8 && call.op <= ReduceOp::minimum &&
         call.device <= Device::cuda && call.axes <= static_cast<int32_t>(call.extents.size()) &&
         std::end(call.name)[-1] == 0 && std::end(call.counts)[-1] == 0 && std::end(call.file)[-1] == 0;
}

std::vector<fs::path> files_in(const std::vector<fs::path>& places) {
  std::vector<fs::path> files;
  for (const fs::path& place : places) {
    if (!fs::exists(place)) throw MissingInput(place.string() + ": there is no such file or folder");
    if (fs::is_directory(place))
      for (const fs::directory_entry& entry : fs::directory_iterator(place)) files.push_back(entry.path());
    else
      files.push_back(place);
  }
  std::sort(files.begin(), files.end());
  require(!files.empty(), "record: there is no file in ", places.front().string());
  return files;
}

// By rank. Every node has a clock of its own, so times are told from the last thing that a file knows.
std::vector<RankRecord> ranks_in(const std::vector<fs::path>& files) {
  std::vector<RankRecord> ranks;
  for (const fs::path& file : files) {
    const std::shared_ptr<Job> job = Job::recorded(file);
    for (int r = 0; r < job->ranks(); ++r) {
      ranks.push_back({job->global(r), job->log(r)});
      for (const Job::Entry& entry : ranks.back().log.calls)
        require(has_text(entry.call), file.string(), ": the calls of rank ", ranks.back().rank, " are damaged");
    }
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  for (size_t i = 1; i < ranks.size(); ++i)
    require(ranks[i].rank != ranks[i - 1].rank, "record: two files have a rank ", ranks[i].rank,
            ", so they are of different jobs");
  return ranks;
}

std::string listed(const std::vector<int>& ranks) {
  std::string list = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    list += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + text(ranks[i]);
  return list;
}

std::string where(const Job::Entry& entry) {
  return "call " + text(entry.call.sequence) + " of group " + text(entry.group) + " (" + text(entry.group_size) +
         " ranks)";
}

// The group of all ranks is 0, and every rank makes all its calls. So who is behind in it keeps the others waiting.
void print_waits(const std::vector<RankRecord>& ranks, std::ostream& out) {
  std::map<uint64_t, std::vector<const RankRecord*>> in_call;  // of group 0
  std::map<int, uint64_t> come_to;                             // the last call of group 0 of each rank
  for (const RankRecord& each : ranks) {
    come_to[each.rank] = 0;
    for (const Job::Entry& entry : each.log.calls)
      if (entry.group == 0) come_to[each.rank] = entry.call.sequence;
    if (!each.log.ended && !each.log.calls.empty() && each.log.calls.back().group == 0)
      in_call[come_to[each.rank]].push_back(&each);
  }
  for (const auto& [call, there] : in_call) {
    std::vector<int> waiting, others, behind;
    for (const RankRecord* each : there) {
      const bool same = each->log.calls.back().call.matches(there[0]->log.calls.back().call);
      (same ? waiting : others).push_back(each->rank);
    }
    for (const auto& [rank, last] : come_to)
      if (last < call) behind.push_back(rank);
    const std::string where = " in call " + std::to_string(call) + " of group 0";
    if (!others.empty()) out << listed(others) << ": another call than on " << listed(waiting) << "," << where << "\n";
    waiting.insert(waiting.end(), others.begin(), others.end());
    if (!behind.empty())
      out << listed(waiting) << (waiting.size() == 1 ? " waits" : " wait") << where << ", to which " << listed(behind)
          << (behind.size() == 1 ? " has" : " have") << " not come\n";
  }
}

}  // namespace

std::string printed_record(const std::vector<fs::path>& places, int calls) {
  const std::vector<RankRecord> ranks = ranks_in(files_in(places));
  std::ostringstream out;
  for (const auto& [rank, log] : ranks) {
    out << "rank " << rank << (log.busy_with.empty() ? "" : ", busy: " + log.busy_with) << "\n";
    if (log.calls.empty()) out << "  no call\n";
    const size_t skipped = log.calls.size() - std::min(log.calls.size(), static_cast<size_t>(calls));
    for (size_t i = skipped; i < log.calls.size(); ++i)
      out << "  " << (i + 1 < log.calls.size() || log.ended ? "finished " : "is in ") << where(log.calls[i]) << ": "
          << log.calls[i].call.text() << "\n";
  }
  print_waits(ranks, out);
  return out.str();
}

}  // namespace weft
