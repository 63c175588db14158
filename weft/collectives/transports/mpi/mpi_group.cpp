// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "weft/collectives/transports/mpi/mpi_reduce.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

constexpr size_t part_bytes = size_t{1} << 17;
// Up to this size every rank folds all bytes: two messages in a row would take longer.
constexpr size_t small_reduction = size_t{4} << 10;

// Messages of send and receive have tag 0, started collectives have the tags between.
constexpr int swap_tag = 32767;

}  // namespace

int as_count(size_t bytes) {
  require(bytes <= INT32_MAX, "mpi: a message of ", bytes >> 20, " MiB is too long; send it in pieces");
  return static_cast<int>(bytes);
}

void poll(Job& job, int rank_on_node, const std::function<bool()>& done) {
  for (int i = 0, spins = job.spin_policy().spins; i < spins; ++i)
    if (done()) return;
  for (int i = 0; i < 200; ++i, let_others_run())
    if (done()) return;
  job.begin_wait(rank_on_node, -1, 0, 0);
  for (; !done(); job.check_wait(rank_on_node)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  job.end_wait(rank_on_node);
}

void finish(Job& job, int rank_on_node, MPI_Request& request) {
  poll(job, rank_on_node, [&] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

void Outbox::release_delivered() {
  for (int done = 1; done && !messages.empty();) {
    MPI_Test(&messages.front().request, &done, MPI_STATUS_IGNORE);
    if (done) messages.pop_front();
  }
}

MpiGroup::State::State(MPI_Comm comm, std::shared_ptr<Job> job, int rank_on_node, std::shared_ptr<Outbox> outbox,
                       int number)
    : comm(comm), job(std::move(job)), rank_on_node(rank_on_node), outbox(std::move(outbox)), number(number) {
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::vector<int> group_ranks(static_cast<size_t>(size));
  std::iota(group_ranks.begin(), group_ranks.end(), 0);
  members = group_ranks;
  MPI_Group group, world;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, size, group_ranks.data(), world, members.data());
  MPI_Group_free(&group);
  MPI_Group_free(&world);
}

// Ranks destroy a group at different times. Freeing a communicator is a collective, but "normally implemented to be
// local" (MPI 4.0, 7.4.3), as it is in MPICH and in Open MPI. Messages that are being sent still arrive.
MpiGroup::State::~State() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm);
}

GlobalRank MpiGroup::global(GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size(), "rank ", rank, " in a group of ", size());
  return {state_->members[static_cast<size_t>(rank.value)]};
}

std::string MpiGroup::description() const { return "mpi (" + text(size()) + " ranks)"; }

MpiGroup::Agreement::Agreement(MpiGroup& group, const Call& call, bool started, size_t mine, size_t longest)
    : group_(group),
      mine_{call, started, longest, mine},
      all_(std::make_unique<Announcement[]>(static_cast<size_t>(group.size()))) {
  MPI_Iallgather(&mine_, sizeof mine_, MPI_BYTE, all_.get(), sizeof mine_, MPI_BYTE, group.state_->comm, &request_);
}

bool MpiGroup::Agreement::arrived() {
  int done = 0;
  MPI_Test(&request_, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

std::vector<size_t> MpiGroup::Agreement::sizes() {
  group_.finish(request_);
  const int n = group_.size();
  std::vector<size_t> sizes;
  bool agree = true;
  for (int r = 0; r < n; ++r) {
    const Announcement& theirs = all_[static_cast<size_t>(r)];
    agree = agree && theirs.call.matches(mine_.call) && theirs.call.sequence == mine_.call.sequence &&
            theirs.started == mine_.started && theirs.longest == mine_.longest;
    sizes.push_back(theirs.size);
  }
  if (!agree) report();
  return sizes;
}

void MpiGroup::Agreement::report() const {
  const State& state = *group_.state_;
  std::string calls;
  for (int r = 0; r < state.size; ++r) {
    const Announcement& theirs = all_[static_cast<size_t>(r)];
    calls += "\n  rank " + text(group_.global({r})) + (theirs.started ? " has started call " : " is in call ") +
             text(theirs.call.sequence) + " of group " + text(state.number) + " (" + text(state.size) +
             " ranks): " + theirs.call.text();
  }
  state.job->fail(
      state.rank_on_node,
      Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group are in different calls" + calls));
}

void MpiGroup::exchange(const Call& requested, Bytes mine, size_t longest, Ranges ranges, Read read) {
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  const std::vector<size_t> sizes = Agreement(*this, call, false, mine.size(), longest).sizes();
  if (ranges.all()) {
    expose_all(mine, sizes, longest, read);
  } else {
    // Each rank goes on as long as it has anything left to send or to receive, which others need not know.
    const size_t received = ranges.longest_of_peers();
    Swap* next = &begin_swap(0, mine, ranges, 0, part_bytes);
    for (size_t at = 0; at < ranges.longest(); at += part_bytes) {
      Swap& swap = *next;
      next = &begin_swap(at / part_bytes + 1, mine, ranges, at + part_bytes, part_bytes);
      finish(swap);
      if (at < received) read({0, std::min(part_bytes, received - at), swap.peers, swap.begins});
    }
  }
  end();
}

void MpiGroup::expose_all(Bytes mine, std::span<const size_t> sizes, size_t longest, Read read) {
  const size_t n = sizes.size(), part = std::min(part_bytes, longest);
  staging_.resize(std::max(staging_.size(), n * part));
  std::vector<int> counts(n), places(n);
  peers_.resize(n);
  for (size_t first = 0; first < longest; first += part) {
    for (size_t r = 0; r < n; ++r) {
      counts[r] = static_cast<int>(std::min(part, sizes[r] - std::min<size_t>(first, sizes[r])));
      places[r] = r ? places[r - 1] + counts[r - 1] : 0;
      peers_[r] = staging_.data() + places[r];
    }
    MPI_Request request;
    MPI_Iallgatherv(mine.data() + std::min(first, mine.size()), counts[static_cast<size_t>(rank())], MPI_BYTE,
                    staging_.data(), counts.data(), places.data(), MPI_BYTE, state_->comm, &request);
    finish(request);
    read({first, std::min(first + part, longest), peers_});
  }
}

MpiGroup::Swap& MpiGroup::begin_swap(size_t number, Bytes mine, const Ranges& ranges, size_t skipped, size_t part) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  Swap& swap = swaps_[number % swaps_.size()];
  swap.peers.resize(n), swap.begins.resize(n);
  size_t total = 0;
  for (size_t r = 0; r < n; ++r)
    if (r != me) total += ranges.of_peers[r].piece(skipped, part).size();
  swap.staging.resize(std::max(swap.staging.size(), total));
  std::byte* place = swap.staging.data();
  for (size_t r = 0; r < n; ++r) {
    const Range in = ranges.of_peers[r].piece(skipped, part), out = ranges.by_peers[r].piece(skipped, part);
    swap.begins[r] = in.first;
    swap.peers[r] = r == me ? mine.data() + in.first : place;
    if (r == me) continue;
    if (in.size())
      MPI_Irecv(place, as_count(in.size()), MPI_BYTE, static_cast<int>(r), swap_tag, state_->comm,
                &swap.requests.emplace_back());
    if (out.size())
      MPI_Isend(mine.data() + out.first, as_count(out.size()), MPI_BYTE, static_cast<int>(r), swap_tag, state_->comm,
                &swap.requests.emplace_back());
    place += in.size();
  }
  return swap;
}

void MpiGroup::finish(Swap& swap) {
  for (MPI_Request& request : swap.requests) finish(request);
  swap.requests.clear();
}

// For each part, every rank receives its slice from all ranks and folds these into the result. Then all ranks gather
// the folded slices. The slices of other ranks have left `mine` by then, so `result` may be the same memory. The links
// stay busy: while a part is folded and gathered, the slices of the next one move.
void MpiGroup::combine(const Call& requested, Bytes mine, std::span<std::byte> result, Fold fold) {
  if (mine.size() <= small_reduction) return Transport::combine(requested, mine, result, fold);
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine.size(), mine.size()).sizes();
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const size_t part_of_all = n * part_bytes;
  std::vector<Range> slices(n);
  std::vector<int> counts(n), places(n);
  const auto slice_of = [&](size_t first, size_t r) {
    return Range{first, std::min(first + part_of_all, mine.size())}.slice(r, n);
  };
  const auto begin_part = [&](size_t first) -> Swap& {
    for (size_t r = 0; r < n; ++r) slices[r] = first < mine.size() ? slice_of(first, r) : Range{};
    const std::vector<Range> own(n, slices[me]);
    return begin_swap(first / part_of_all, mine, {own, slices}, 0, part_bytes);
  };
  MPI_Request gathering = MPI_REQUEST_NULL;
  Swap* next = &begin_part(0);
  for (size_t first = 0; first < mine.size(); first += part_of_all) {
    Swap& swap = *next;
    next = &begin_part(first + part_of_all);
    finish(swap);
    for (size_t r = 0; r < n; ++r) {
      const Range slice = slice_of(first, r);
      counts[r] = as_count(slice.size()), places[r] = as_count(slice.first - first);
    }
    if (const Range own = slice_of(first, me); own.size())
      fold({own.first, own.last, swap.peers}, result.data() + own.first);
    finish(gathering);
    MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, result.data() + first, counts.data(), places.data(), MPI_BYTE,
                    state_->comm, &gathering);
  }
  finish(gathering);
  end();
}

bool MpiGroup::combine_in_any_order(const Call& requested, Bytes mine, std::span<std::byte> result) {
  if (!mpi_reduces(requested, mine.size())) return false;
  Call call = requested;
  call.sequence = ++state_->calls;
  begin(call);
  Agreement(*this, call, false, mine.size(), mine.size()).sizes();
  MPI_Request request = reduce_by_mpi(state_->comm, call, mine, result);
  finish(request);
  end();
  return true;
}

void MpiGroup::send(Call call, GroupRank to, Bytes bytes) {
  require(to.value >= 0 && to.value < size(), "send: to rank ", to, " of a group of ", size());
  call.root = to.value;
  call.sequence = ++state_->sent;
  begin(call);
  Outbox& outbox = *state_->outbox;
  outbox.release_delivered();
  Outbox::Message& message = outbox.messages.emplace_back();
  message.bytes.resize(sizeof call + bytes.size());
  std::memcpy(message.bytes.data(), &call, sizeof call);
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin() + sizeof call);
  MPI_Isend(message.bytes.data(), as_count(message.bytes.size()), MPI_BYTE, to.value, 0, state_->comm,
            &message.request);
  end();
}

Call MpiGroup::receive(Call call, GroupRank from, std::span<std::byte> bytes) {
  require(from.value >= 0 && from.value < size(), "receive: from rank ", from, " of a group of ", size());
  call.root = from.value;
  call.sequence = ++state_->received;
  begin(call);
  MPI_Message matched;
  MPI_Status status;
  poll(*state_->job, state_->rank_on_node, [&] {
    int arrived = 0;
    MPI_Improbe(from.value, 0, state_->comm, &arrived, &matched, &status);
    return arrived != 0;
  });
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::byte> message(static_cast<size_t>(size));
  MPI_Request request;
  MPI_Imrecv(message.data(), size, MPI_BYTE, &matched, &request);
  finish(request);
  Call sent;
  std::memcpy(&sent, message.data(), sizeof sent);
  if (!sent.same_message(call) || message.size() != sizeof call + bytes.size())
    state_->job->fail(state_->rank_on_node, wrong_message(sent, global(from), call, global({rank()})));
  std::copy_n(message.begin() + sizeof call, bytes.size(), bytes.begin());
  end();
  return sent;
}

std::unique_ptr<Transport> MpiGroup::split(int color, int key, Site site) {
  struct Choice {
    int32_t color, key, groups;
  };
  const Choice mine{color, key, state_->outbox->groups};
  int groups = 0;
  expose(describe(Verb::split, site), std::as_bytes(std::span(&mine, 1)), sizeof mine, [&](const Part& part) {
    for (const std::byte* peer : part.peers) {
      Choice theirs;
      std::memcpy(&theirs, peer, sizeof theirs);
      groups = std::max(groups, theirs.groups);
    }
  });
  state_->outbox->groups = groups + 1;
  MPI_Comm comm;  // MPI has no form of this to poll; all ranks have just arrived, so the wait is short
  MPI_Comm_split(state_->comm, color < 0 ? MPI_UNDEFINED : color, key, &comm);
  if (color < 0) return nullptr;
  return std::make_unique<MpiGroup>(
      std::make_shared<State>(comm, state_->job, state_->rank_on_node, state_->outbox, groups));
}

std::string MpiGroup::busy_with(const std::string& what) { return state_->job->busy_with(state_->rank_on_node, what); }

void MpiGroup::finalize(Site site) {
  expose(describe(Verb::finalize, site), {}, 0, [](const Part&) {});
  poll(*state_->job, state_->rank_on_node, [&] {
    state_->outbox->release_delivered();
    return state_->outbox->messages.empty();
  });
}

StorageHandle MpiGroup::allocate_shown(size_t bytes) { return StorageHandle(backend(Device::cpu).allocate(bytes)); }

}  // namespace weft
