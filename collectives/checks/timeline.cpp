// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/checks/timeline.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <type_traits>

#include "weft/collectives/checks/agreement.h"

namespace weft {
namespace {

// On rank 0: how much later each rank's clock is than its own. Ranks leave a barrier at about the same time; the median
// over several leaves out those in which one was interrupted.
std::vector<double> clock_differences(const Clock& clock, Communicator& comm, Site site) {
  constexpr int64_t barriers = 15;
  const std::vector<std::string> machines = all_texts(clock.machine, comm, site);
  std::vector<double> differences(machines.size(), 0.0);
  if (std::ranges::all_of(machines, [&](const std::string& machine) { return machine == machines[0]; }))
    return differences;
  std::vector<double> left;
  for (int64_t i = 0; i < barriers; ++i) {
    comm.barrier(site);
    left.push_back(clock.now());
  }
  const std::vector<double> all = comm.gather(Tensor::from({1, barriers}, left, DType::f64), {0}, site).values();
  for (size_t r = 0; r * barriers < all.size(); ++r) {
    if (machines[r] == machines[0]) continue;
    std::vector<double> later;
    for (size_t i = 0; i < barriers; ++i) later.push_back(all[r * barriers + i] - all[i]);
    std::ranges::nth_element(later, later.begin() + barriers / 2);
    differences[r] = later[barriers / 2];
  }
  return differences;
}

Timeline::Event part_of_program(const char* name, double begin, double end, Timeline::Kind kind) {
  Timeline::Event event;
  event.kind = kind;
  event.begin = begin;
  event.end = end;
  event.call = with_name(event.call, name);
  return event;
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Clock Clock::of_this_machine() {
  std::string start;  // the number of this start of the machine
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::getline(file, start);
  return {start, seconds_now};
}

void Timeline::add(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (events_.size() > most_)
    events_.back().end = event.end;
  else if (events_.size() == most_)
    events_.push_back(part_of_program("later events are left out", event.begin, event.end, Kind::part));
  else
    events_.push_back(event);
}

void Timeline::add(const char* part, double begin, double end, Kind kind) {
  add(part_of_program(part, begin, end, kind));
}

std::vector<Timeline::Events> gather_timelines(const Timeline& mine, Communicator& comm, const Clock& clock,
                                               Site site) {
  using Event = Timeline::Event;
  static_assert(std::is_trivially_copyable_v<Event>);
  const std::vector<double> differences = clock_differences(clock, comm, site);
  const auto count = static_cast<int64_t>(mine.events().size());
  const Communicator::Rows counts = comm.rows_of(count, site);
  Tensor bytes({count, static_cast<int64_t>(sizeof(Event))}, DType::u8);
  if (count > 0) std::memcpy(bytes.mutate(), mine.events().data(), bytes.bytes());
  const Tensor all = comm.gather_v(bytes, counts, {0}, site);
  std::vector<Timeline::Events> ranks;
  const auto* at = all.data<char>();
  for (size_t r = 0; r < counts.size() && comm.rank().value == 0; ++r) {
    Timeline::Events& events = ranks.emplace_back(static_cast<size_t>(counts[r]));
    const size_t size = events.size() * sizeof(Event);
    if (size > 0) std::memcpy(events.data(), at, size);
    at += size;
    for (Event& event : events) event.begin -= differences[r], event.end -= differences[r];
  }
  return ranks;
}

}  // namespace weft
