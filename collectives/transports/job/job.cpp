// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/job/job.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <new>

#include "weft/collectives/transports/environment.h"
#include "weft/engine/tensor/out_of_memory.h"

namespace weft {
namespace {

// The coarse clock takes a few nanoseconds to read and is accurate to a few milliseconds.
int64_t milliseconds_now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return int64_t{time.tv_sec} * 1000 + time.tv_nsec / 1'000'000;
}

std::string seconds(int64_t milliseconds) {
  const int64_t tenths = (milliseconds + 50) / 100;
  return text(tenths / 10) + "." + text(tenths % 10) + " s";
}

// The longest time between two checks of a waiting rank that counts towards its deadline. If more time has passed, the
// rank itself was not running.
int64_t max_check_interval(std::chrono::milliseconds deadline) {
  return std::clamp<int64_t>(deadline.count() / 4, 50, 250);
}

constexpr int busy_deadlines = 10;  // how many deadlines a rank may be busy before others stop waiting for it

constexpr uint64_t layout = 0x3130746665772004;  // changes with the structs below

}  // namespace

std::chrono::milliseconds default_deadline() {
  const char* given = std::getenv("WEFT_TIMEOUT");
  return given ? seconds_in("WEFT_TIMEOUT", given) : std::chrono::minutes(1);
}

Fault fault_being_handled() {
  try {
    throw;
  } catch (const Fault& fault) {
    return fault;
  } catch (const OutOfMemory& error) {
    return Fault(exit_codes::out_of_memory, error.what());
  } catch (const std::bad_alloc&) {
    return Fault(exit_codes::out_of_memory, "out of memory");
  } catch (const std::exception& exception) {
    return Fault(exit_codes::exception, exception.what());
  } catch (...) {
    return Fault(exit_codes::exception, "an exception that is not a std::exception");
  }
}

struct Job::Header {
  Header(int ranks, Offset first_block) : ranks(ranks), blocks(first_block) {}

  uint64_t layout = weft::layout;
  int32_t ranks;
  std::atomic<int32_t> groups{0};
  Offset world = 0;
  int64_t started = 0;
  char node[64]{};
  std::atomic<uint64_t> cores[16]{};  // one bit for each core that a rank may run on
  std::atomic<int32_t> failure{0};    // 0: none, 1: being written, 2: written below, 3: the rank that wrote it is lost
  int32_t failed_rank = 0, exit_code = 0;
  char message[8000]{};
  Blocks blocks;
};

Offset Job::end_of_logs(int ranks) {
  constexpr Offset first = (Memory::first + sizeof(Header) + 63) / 64 * 64;
  return first + sizeof(Rank) * static_cast<size_t>(ranks);
}

Job::Job(Memory memory, std::chrono::milliseconds deadline) : memory_(std::move(memory)), deadline_(deadline) {}

void Job::prepare_waits(int ranks) {
  waiting_.resize(static_cast<size_t>(ranks));
  for (const WaitProgress& of_rank : waiting_) of_rank.unfinished->take_failures_from([this] { check(); });
}

std::shared_ptr<Job> Job::create(Memory memory, int ranks, std::chrono::milliseconds deadline) {
  std::shared_ptr<Job> job(new Job(std::move(memory), deadline));
  const Offset end = end_of_logs(ranks);
  job->memory_.reserve(0, end);
  new (job->at<void>(Memory::first)) Header(ranks, end);
  gethostname(job->header().node, sizeof Header::node - 1);
  for (int r = 0; r < ranks; ++r) (new (&job->rank(r)) Rank{})->global = r;
  job->prepare_waits(ranks);
  return job;
}

std::shared_ptr<Job> Job::open(Memory memory, std::chrono::milliseconds deadline) {
  std::shared_ptr<Job> job(new Job(std::move(memory), deadline));
  require(job->header().layout == layout, "shared memory: ", job->memory_.path(),
          " was made by another version of Weft");
  job->prepare_waits(job->ranks());
  return job;
}

std::shared_ptr<Job> Job::recorded(const std::string& path) { return recorded(Memory::bytes_of_file(path), path); }

std::shared_ptr<Job> Job::recorded(std::span<const std::byte> bytes, const std::string& path) {
  Memory memory = Memory::copy_of_file(bytes, path);
  const bool has_header = memory.size() >= Memory::first + sizeof(Header);
  const auto* header = has_header ? reinterpret_cast<const Header*>(memory.base() + Memory::first) : nullptr;
  require(header && header->layout == layout && header->ranks > 0 &&
              memory.size() / sizeof(Rank) >= static_cast<size_t>(header->ranks) &&
              memory.size() >= end_of_logs(header->ranks),
          path, ": it is cut, or of another version of Weft");
  return std::shared_ptr<Job>(new Job(std::move(memory), {}));
}

Job::Rank& Job::rank(int r) const { return *at<Rank>(end_of_logs(r)); }

int Job::ranks() const { return header().ranks; }
int Job::new_group() { return header().groups++; }
Offset Job::world() const { return header().world; }
void Job::set_world(Offset group) { header().world = group; }
int64_t Job::started() const { return header().started; }
void Job::set_started(int64_t microseconds) { header().started = microseconds; }
std::string Job::node() const { return {header().node, strnlen(header().node, sizeof Header::node)}; }

void Job::join(int r, int global) {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  for (int core = 0; core < 1024; ++core)
    if (CPU_ISSET(core, &cores)) header().cores[core / 64] |= uint64_t{1} << core % 64;
  rank(r).global = global;
  rank(r).process = getpid();
  rank(r).thread = static_cast<int>(syscall(SYS_gettid));
}

SpinPolicy Job::spin_policy() const {
  int cores = 0;
  for (const auto& word : header().cores) cores += std::popcount(word.load());
  return SpinPolicy::of(ranks(), cores);
}

Offset Job::allocate(size_t bytes) { return header().blocks.take(memory_, bytes); }
void Job::give(Offset block) { header().blocks.give(memory_, block); }
void Job::add_to_group(Offset block, Blocks::Chain& blocks) { Blocks::add(memory_, block, blocks); }

void Job::keep_for_group(int group, Tensor tensor) {
  const std::lock_guard lock(mutex_);
  kept_.emplace(group, std::move(tensor));
}

void Job::give_group(int group, Blocks::Chain& blocks) {
  header().blocks.give_all(memory_, blocks);
  std::vector<Tensor> dropped;  // destroyed after the lock is released, because a tensor may hold another group
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = kept_.equal_range(group);
  for (auto i = begin; i != end; ++i) dropped.push_back(std::move(i->second));
  kept_.erase(begin, end);
}

void Job::keep_logs() const { memory_.keep(end_of_logs(ranks())); }
std::span<const std::byte> Job::logs() const { return {memory_.base(), end_of_logs(ranks())}; }

// A call that a rank makes while it waits in another is not logged: that other one is to be reported.
void Job::begin(int r, const Call& call, int group, int group_size) {
  Rank& mine = rank(r);
  if (mine.wait.load().asleep) return;
  const uint64_t calls = mine.calls.load(std::memory_order_relaxed);
  mine.log[calls % log_length].store({call, milliseconds_now(), group, group_size});
  mine.ended.store(0, std::memory_order_relaxed);
  mine.calls.store(calls + 1, std::memory_order_release);
}

void Job::end(int r) {
  if (!rank(r).wait.load().asleep) rank(r).ended.store(milliseconds_now(), std::memory_order_relaxed);
}

Job::Entry Job::last(int r) const {
  const uint64_t calls = rank(r).calls.load(std::memory_order_acquire);
  return calls ? rank(r).log[(calls - 1) % log_length].load() : Entry{};
}

Job::Log Job::log(int r) const {
  const Rank& theirs = rank(r);
  const uint64_t calls = theirs.calls, kept = std::min<uint64_t>(calls, log_length);
  const std::array<char, 256> busy_with = theirs.busy_with.load();
  Log all{{}, theirs.ended != 0, ""};
  if (theirs.busy_since) all.busy_with = std::string(busy_with.data(), strnlen(busy_with.data(), busy_with.size()));
  for (uint64_t i = calls - kept; i < calls; ++i) all.calls.push_back(theirs.log[i % log_length].load());
  return all;
}

std::string Job::busy_with(int r, const std::string& what) {
  Rank& mine = rank(r);
  const std::string before = mine.busy_with.load().data();
  std::array<char, 256> characters{};
  what.copy(characters.data(), characters.size() - 1);
  mine.busy_with.store(characters);
  mine.busy_since = what.empty() ? 0 : milliseconds_now();
  return before;
}

std::optional<int> Job::end_status(int r) const {
  const int64_t end = rank(r).end;
  return end == 0 ? std::nullopt : std::optional(static_cast<int>(end - 1));
}

void Job::record_end(int r, int status) { rank(r).end = int64_t{status} + 1; }

void Job::begin_wait(int r, int awaited, Offset word, uint64_t value) {
  Rank& mine = rank(r);
  const Wait before = mine.wait.load();
  const bool same = before.asleep && before.word == word && before.value == value;
  if (same) return;
  if (!before.asleep) {
    waiting_[static_cast<size_t>(r)].last_check = milliseconds_now();
    waiting_[static_cast<size_t>(r)].elapsed = 0;
  }
  mine.changes.fetch_add(1);
  mine.wait.store({word, value, before.asleep ? before.since : milliseconds_now(), awaited, 1});
  mine.changes.fetch_add(1);
}

void Job::end_wait(int r) {
  Rank& mine = rank(r);
  mine.changes.fetch_add(1);
  mine.wait.store({});
  mine.changes.fetch_add(1);
}

void Job::check_wait(int r) {
  check();
  if (const auto& send = waiting_[static_cast<size_t>(r)].send) send();
  unfinished(r)->go_on();
  rank(r).goes_on.fetch_add(1);
  if (const std::string waits = wait_cycle(r); !waits.empty())
    fail(r, Fault(exit_codes::mismatch, "collective mismatch: these ranks wait for each other" + waits));
  WaitProgress& mine = waiting_[static_cast<size_t>(r)];
  const int64_t now = milliseconds_now(), passed = now - mine.last_check;
  if (passed == 0) return;
  mine.last_check = now;
  if (!any_rank_busy(now)) mine.elapsed += std::min(passed, max_check_interval(deadline_));
  if (mine.elapsed < deadline_.count()) return;
  const Wait wait = rank(r).wait.load();
  fail(r, Fault(exit_codes::deadline, "deadline: " + name(r) + " has waited " + seconds(now - wait.since) + " for " +
                                          name(wait.awaited) + " in " + doing(r) + table()));
}

// A busy rank that waits in a call itself does not count: then its work is not what delays the others.
bool Job::any_rank_busy(int64_t now) const {
  for (int r = 0; r < ranks(); ++r) {
    const int64_t since = rank(r).busy_since.load(std::memory_order_relaxed);
    if (since == 0 || now - since >= busy_deadlines * deadline_.count() || rank(r).wait.load().asleep) continue;
    if (const std::string now_is = state(r); now_is == "running" || now_is == "asleep") return true;
  }
  return false;
}

std::vector<uint64_t> Job::times_gone_on() const {
  std::vector<uint64_t> times;
  for (int r = 0; r < ranks(); ++r) times.push_back(rank(r).goes_on.load());
  return times;
}

// Follows the ranks awaited, from this one on. A cycle is a deadlock only if checks in a row find it with no rank
// changed, and each of them has gone on with what is unfinished in between: then all its ranks slept at the same time,
// each for something that was not done, and that none of them does while it waits. "In between" is from the end of one
// check to the begin of the other: what a rank does during a check may end a wait that this has looked at already.
std::string Job::wait_cycle(int r) {
  WaitProgress& mine = waiting_[static_cast<size_t>(r)];
  const std::vector<uint64_t> gone_on = times_gone_on();
  std::string waits;
  bool all_went_on = true;
  uint64_t cycle = 1;
  for (int at_rank = r, n = 0; n < ranks(); ++n) {
    const uint64_t changes = rank(at_rank).changes.load();
    const Wait wait = rank(at_rank).wait.load();
    if (!wait.asleep || wait.awaited < 0 || at<std::atomic<uint64_t>>(wait.word)->load() >= wait.value) break;
    waits += "\n  " + name(at_rank) + " waits for " + name(wait.awaited) + " in " + doing(at_rank);
    cycle = cycle * 1'000'003 + changes;
    const auto i = static_cast<size_t>(at_rank);
    all_went_on =
        all_went_on && i < mine.went_on.size() && gone_on[i] > mine.went_on[i] + 1;  // the first may have begun before
    at_rank = wait.awaited;
    if (at_rank != r) continue;
    if (std::exchange(mine.suspected_cycle, cycle) == cycle) return all_went_on ? waits : "";
    mine.went_on = times_gone_on();
    return "";
  }
  mine.suspected_cycle = 0;
  return "";
}

bool Job::record(int r, const Fault& fault) {
  Header& h = header();
  int32_t none = 0;
  if (!h.failure.compare_exchange_strong(none, 1)) return false;
  h.failed_rank = r;
  h.exit_code = fault.exit_code;
  std::strncpy(h.message, fault.what(), sizeof h.message - 1);
  int32_t mine = 1;
  return h.failure.compare_exchange_strong(mine, 2);
}

int Job::first_to_fail() const {
  return header().failure.load(std::memory_order_acquire) == 2 ? header().failed_rank : -1;
}

Fault Job::failure() const { return Fault(header().exit_code, header().message); }

// A rank may be lost while it writes its failure. Another rank that has waited for it for a second then reports its
// own.
void Job::fail(int r, const Fault& fault) {
  std::atomic<int32_t>& failure = header().failure;
  if (!record(r, fault)) {
    const int64_t begin = milliseconds_now();
    while (failure.load() == 1 && milliseconds_now() - begin < 1000) let_others_run();
    int32_t written = 1;
    if (!failure.compare_exchange_strong(written, 3)) check();
  }
  end(fault, true);
}

void Job::check() {
  const Header& h = header();
  const int32_t failure = h.failure.load(std::memory_order_acquire);
  if (failure < 2) return;
  if (failure == 3) end(Fault(exit_codes::peer_died, "the rank that failed first was lost before it said why"), false);
  end(Fault(h.exit_code, name(h.failed_rank) + " failed first: " + h.message), false);
}

void Job::end(const Fault& fault, bool first) {
  if (end_handler) end_handler(fault, first);
  throw fault;
}

std::string Job::name(int r) const { return r < 0 ? "its peers" : "rank " + text(global(r)); }

int Job::global(int r) const { return rank(r).global.load(); }
int Job::process(int r) const { return rank(r).process.load(); }

bool Job::is_rank(int r, int process, int thread) const {
  return rank(r).process.load() == process && (thread == 0 || rank(r).thread.load() == thread);
}

std::string Job::state(int r) const {
  const std::string process = text(rank(r).process.load()), thread = text(rank(r).thread.load());
  std::ifstream stat("/proc/" + process + "/task/" + thread + "/stat");
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return "DEAD";
  switch (line[name_end + 2]) {
    case 'T':
    case 't': return "STOPPED (T)";
    case 'Z':
    case 'X': return "DEAD";
    case 'R': return "running";
    default: return "asleep";
  }
}

std::string Job::doing(int r) const {
  const Entry entry = last(r);
  if (!entry.began) return "no call yet";
  return "call " + text(entry.call.sequence) + " of group " + text(entry.group) + " (" + text(entry.group_size) +
         " ranks): " + entry.call.text();
}

std::string Job::table() const {
  const int64_t now = milliseconds_now();
  std::string lines;
  for (int r = 0; r < ranks(); ++r) {
    const int64_t ended = rank(r).ended, began = last(r).began, busy = rank(r).busy_since;
    lines += "\n  " + name(r) + ", process " + text(rank(r).process.load()) + ", " + state(r) + ": ";
    if (busy) lines += rank(r).busy_with.load().data() + (", for " + seconds(now - busy)) + "; ";
    if (began) lines += ended ? "finished " + seconds(now - ended) + " ago " : "for " + seconds(now - began) + " in ";
    lines += doing(r);
  }
  return lines;
}

}  // namespace weft
