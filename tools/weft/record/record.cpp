// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/record/record.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "weft/data/files/input_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct RankRecord {
  int rank, node_number;
  std::string node;
  int process;
  std::optional<int> end;  // as waitpid tells it
  Job::Log log;

  std::string name() const { return "rank " + text(rank) + (node.empty() ? "" : " on " + node); }
};

std::string in_words(int end) {
  if (!WIFSIGNALED(end)) return "with exit code " + text(WEXITSTATUS(end));
  return "by signal " + text(WTERMSIG(end)) + " (" + strsignal(WTERMSIG(end)) + ")";
}

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
std::vector<RankRecord> ranks_in(const std::vector<NodeRecord>& nodes) {
  std::vector<RankRecord> ranks;
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto& [name, job] = nodes[n];
    for (int r = 0; r < job->ranks(); ++r) {
      ranks.push_back(
          {job->global(r), static_cast<int>(n), job->node(), job->process(r), job->end_status(r), job->log(r)});
      for (const Job::Entry& entry : ranks.back().log.calls)
        require(has_text(entry.call), name, ": the calls of rank ", ranks.back().rank, " are damaged");
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

// The ranks of a group, as far as their logs show them.
struct Group {
  int id, size;
  int on_node;  // the number of its node, or -1: several, or all ranks are on one
  std::vector<const RankRecord*> members;
};

bool has_call_of(const RankRecord& rank, int group, int size) {
  const auto& calls = rank.log.calls;
  return std::any_of(calls.begin(), calls.end(),
                     [&](const Job::Entry& entry) { return entry.group == group && entry.group_size == size; });
}

// Groups of different nodes may have the same number, so all ranks of a group must be known, but for group 0 if it has
// more ranks than any node.
std::vector<Group> groups_of(const std::vector<RankRecord>& ranks) {
  std::set<std::pair<int, int>> found;  // number and size
  std::map<int, int> ranks_on;
  for (const RankRecord& each : ranks) {
    ++ranks_on[each.node_number], ++ranks_on[-1];
    for (const Job::Entry& entry : each.log.calls) found.emplace(entry.group, entry.group_size);
  }
  std::vector<Group> groups;
  for (const auto& [id, size] : found) {
    bool of_nodes = false;
    for (const auto& [node, number] : ranks_on) of_nodes |= node >= 0 && size <= number && number < ranks_on[-1];
    for (const auto& [node, number] : ranks_on) {
      Group group{id, size, node, {}};
      for (const RankRecord& each : ranks)
        if ((node < 0 || each.node_number == node) && has_call_of(each, id, size)) group.members.push_back(&each);
      const auto known = static_cast<int>(group.members.size());
      const bool whole = known == size && (node < 0 || number < ranks_on[-1]);
      if (whole || (id == 0 && node < 0 && !of_nodes && known < size)) groups.push_back(std::move(group));
    }
  }
  return groups;
}

uint64_t last_call_of(const RankRecord& rank, const Group& group) {
  uint64_t last = 0;
  for (const Job::Entry& entry : rank.log.calls)
    if (entry.group == group.id && entry.group_size == group.size) last = entry.call.sequence;
  return last;
}

// Every rank of a group makes all its calls. So one that is behind keeps those waiting that are in a call.
void print_waits(const Group& group, std::ostream& out) {
  std::map<uint64_t, std::vector<const RankRecord*>> in_call;
  for (const RankRecord* each : group.members)
    if (const Job::Entry& last = each->log.calls.back();
        !each->log.ended && last.group == group.id && last.group_size == group.size)
      in_call[last.call.sequence].push_back(each);
  for (const auto& [call, there] : in_call) {
    std::vector<int> waiting, others, behind;
    for (const RankRecord* each : there) {
      const bool same = each->log.calls.back().call.matches(there[0]->log.calls.back().call);
      (same ? waiting : others).push_back(each->rank);
    }
    for (const RankRecord* each : group.members)
      if (last_call_of(*each, group) < call) behind.push_back(each->rank);
    const std::string where = " in call " + std::to_string(call) + " of group " + text(group.id) +
                              (group.on_node < 0 ? "" : " on " + group.members[0]->node);
    if (!others.empty()) out << listed(others) << ": another call than on " << listed(waiting) << "," << where << "\n";
    waiting.insert(waiting.end(), others.begin(), others.end());
    if (!behind.empty())
      out << listed(waiting) << (waiting.size() == 1 ? " waits" : " wait") << where << ", to which " << listed(behind)
          << (behind.size() == 1 ? " has" : " have") << " not come\n";
  }
}

// The process that died first is the one whose parent has lived long enough to record it.
void print_ends(const std::vector<RankRecord>& ranks, std::ostream& out) {
  for (const RankRecord& each : ranks)
    if (each.end) out << each.name() << " ended " << in_words(*each.end) << "\n";
}

}  // namespace

std::vector<NodeRecord> node_records(const std::vector<fs::path>& places) {
  std::vector<NodeRecord> nodes;
  for (const fs::path& file : files_in(places)) nodes.push_back({file.string(), Job::recorded(file)});
  return nodes;
}

std::string printed_record(const std::vector<NodeRecord>& nodes, int calls) {
  const std::vector<RankRecord> ranks = ranks_in(nodes);
  std::ostringstream out;
  for (const RankRecord& each : ranks) {
    const Job::Log& log = each.log;
    out << each.name() << ", process " << each.process << (each.end ? ", ended " + in_words(*each.end) : "")
        << (log.busy_with.empty() ? "" : ", busy: " + log.busy_with) << "\n";
    if (log.calls.empty()) out << "  no call\n";
    const size_t skipped = log.calls.size() - std::min(log.calls.size(), static_cast<size_t>(calls));
    for (size_t i = skipped; i < log.calls.size(); ++i)
      out << "  " << (i + 1 < log.calls.size() || log.ended ? "finished " : "is in ") << where(log.calls[i]) << ": "
          << log.calls[i].call.text() << "\n";
  }
  for (const Group& group : groups_of(ranks)) print_waits(group, out);
  print_ends(ranks, out);
  return out.str();
}

}  // namespace weft
