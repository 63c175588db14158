// SPDX-License-Identifier: Apache-2.0
#include "apps/shared/report/trace_file.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

#include "weft/data/files/durable_file.h"
#include "weft/data/files/json_text.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Event = Timeline::Event;
using Kind = Timeline::Kind;

// A file in which each line but the first and the last has an event.
class TraceFile {
 public:
  TraceFile(const fs::path& place, const std::string& backend, size_t rank, size_t ranks) : file_(place) {
    text_ = R"({"displayTimeUnit": "ms", "distributedInfo": {"backend": )" + in_quotes(backend) + R"(, "rank": )" +
            text(rank) + R"(, "world_size": )" + text(ranks) + "},\n\"traceEvents\": [";
  }
  void add(const std::string& event) {
    text_ += std::exchange(separator_, ",\n") + event;
    if (text_.size() >= piece) write();
  }
  void commit() {
    text_ += "\n]}\n";
    write();
    file_.commit();
  }

 private:
  static constexpr size_t piece = 1 << 20;
  void write() {
    file_.write(written_, text_.data(), text_.size());
    written_ += text_.size();
    text_.clear();
  }

  DurableFile file_;
  uint64_t written_ = 0;
  std::string text_, separator_ = "\n";
};

// "0-3, 6"
std::string in_ranges(const std::set<size_t>& ranks) {
  std::string words;
  for (auto first = ranks.begin(); first != ranks.end();) {
    auto last = first;
    while (std::next(last) != ranks.end() && *std::next(last) == *last + 1) ++last;
    words += (words.empty() ? "" : ", ") + text(*first) + (first == last ? "" : "-" + text(*last));
    first = std::next(last);
  }
  return words;
}

// The ranks of each group of which there are calls.
std::map<uint64_t, std::string> groups_of(std::span<const Timeline::Events> ranks) {
  std::map<uint64_t, std::set<size_t>> members;
  for (size_t r = 0; r < ranks.size(); ++r)
    for (const Event& event : ranks[r]) members[event.group].insert(r);
  std::map<uint64_t, std::string> groups;
  for (const auto& [group, of_group] : members) groups[group] = in_ranges(of_group);
  return groups;
}

fs::path file_of_rank(const fs::path& folder, size_t rank) { return folder / ("rank-" + text(rank) + ".json"); }

class Trace {
 public:
  explicit Trace(std::span<const Timeline::Events> ranks) : ranks_(ranks), groups_(groups_of(ranks)) {
    for (const Timeline::Events& events : ranks)
      for (const Event& event : events) begin_ = std::min(begin_, event.begin);
  }

  void add_rank(TraceFile& file, size_t rank) const {
    const auto named = [&](const char* name, const char* thread) {
      return R"({"ph": "M", "pid": )" + text(rank) + R"(, "tid": )" + thread + R"(, "ts": 0, "name": ")" + name;
    };
    file.add(named("process_name", "0") + R"(", "args": {"name": "rank )" + text(rank) + R"("}})");
    file.add(named("process_sort_index", "0") + R"(", "args": {"sort_index": )" + text(rank) + "}}");
    file.add(named("thread_name", "0") + R"(", "args": {"name": "steps and calls"}})");
    file.add(named("thread_name", "1") + R"(", "args": {"name": "data for later steps"}})");
    for (const Event& event : ranks_[rank])
      file.add(R"({"ph": "X", "pid": )" + text(rank) + R"(, "tid": )" + (event.kind == Kind::beside ? "1" : "0") +
               R"(, "ts": )" + microseconds(event.begin - begin_) + R"(, "dur": )" +
               microseconds(event.end - event.begin) + description(event) + "}");
  }

  void add_arrows(TraceFile& file) const {
    int64_t arrows = 0;
    for (const auto& [call, places] : calls()) {
      const Place last = *std::ranges::max_element(places, {}, [](const Place& at) {
        const bool comes_later = at.event->kind == Kind::second_half || at.event->kind == Kind::receive;
        return comes_later ? -std::numeric_limits<double>::infinity() : at.event->begin;
      });
      for (const Place& at : places) {
        const bool waits = at.event->kind != Kind::first_half && at.rank != last.rank;
        if (!waits || at.event->end <= last.event->begin) continue;
        const auto end_of_arrow = [&](const char* phase, const Place& where, double time) {
          file.add(std::string(R"({"ph": ")") + phase + R"(", "bp": "e", "id": )" + text(arrows) + R"(, "pid": )" +
                   text(where.rank) + R"(, "tid": 0, "ts": )" + microseconds(time - begin_) +
                   R"(, "cat": "waits for", "name": ")" + name(at.event->call.verb) + "\"}");
        };
        end_of_arrow("s", last, last.event->begin);
        end_of_arrow("f", at, std::max(at.event->begin, last.event->begin));
        ++arrows;
      }
    }
  }

 private:
  struct Place {
    size_t rank;
    const Event* event;
  };

  // The events of each collective and message.
  std::map<std::pair<uint64_t, int64_t>, std::vector<Place>> calls() const {
    std::map<std::pair<uint64_t, int64_t>, std::vector<Place>> calls;
    for (size_t r = 0; r < ranks_.size(); ++r)
      for (const Event& event : ranks_[r])
        if (Timeline::is_call(event.kind)) calls[{event.group, event.number}].push_back({r, &event});
    return calls;
  }

  static std::string microseconds(double seconds) {
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.3f", 1e6 * seconds);
    return digits;
  }

  std::string description(const Event& event) const {
    const auto named = [](const char* category, const std::string& name) {
      return std::string(R"(, "cat": ")") + category + R"(", "name": )" + in_quotes(name);
    };
    if (event.kind == Kind::part || event.kind == Kind::beside) return named("part", event.call.name);
    if (event.kind == Kind::forward) return named("forward", event.call.name);
    if (event.kind == Kind::backward) return named("backward", event.call.name);
    const std::string verb = text(event.call.verb);
    std::string words = event.kind == Kind::send || event.kind == Kind::receive ? named("message", verb)
                        : event.kind == Kind::first_half                        ? named("collective", "start " + verb)
                        : event.kind == Kind::second_half                       ? named("collective", "await " + verb)
                                                                                : named("collective", verb);
    words += R"(, "args": {"call": )" + in_quotes(event.call.text()) + R"(, "bytes": )" + text(event.bytes) +
             R"(, "ranks": ")" + groups_.at(event.group) + R"(", "id": ")" + std::to_string(event.group) + ":" +
             text(event.number) + "\"}";
    return words;
  }

  const std::span<const Timeline::Events> ranks_;
  const std::map<uint64_t, std::string> groups_;
  double begin_ = std::numeric_limits<double>::infinity();
};

}  // namespace

void expect_room_for_trace(const fs::path& place) {
  const DurableFile not_committed(fs::is_directory(place) ? file_of_rank(place, 0) : place);
}

void write_trace(const fs::path& place, const std::string& backend, std::span<const Timeline::Events> ranks) {
  const Trace trace(ranks);
  if (fs::is_directory(place)) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      TraceFile file(file_of_rank(place, r), backend, r, ranks.size());
      trace.add_rank(file, r);
      file.commit();
    }
    return;
  }
  TraceFile file(place, backend, 0, ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) trace.add_rank(file, r);
  trace.add_arrows(file);
  file.commit();
}

}  // namespace weft
