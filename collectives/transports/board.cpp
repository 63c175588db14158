#include "collectives/transports/board.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <numeric>

namespace weft {
namespace {

// Parts are small enough for the second-level cache to hold a part of each of a few ranks. Threads stage only what is
// too little to be worth a second step.
constexpr size_t part_of_processes = size_t{256} << 10, part_of_threads = size_t{16} << 10;
constexpr size_t least_staged = 4096;

}  // namespace

Offset SharedMemory::new_board(Job& job, const std::vector<int>& members, Sight sight, int holders) {
  const size_t n = members.size();
  const Offset place = job.allocate(sizeof(Board));
  Board& board = *new (job.at<void>(place)) Board;
  board.group = job.new_group();
  board.memory.group = board.group;
  board.memory.holders = holders;
  job.belongs(place, board.memory.blocks);
  board.size = static_cast<int32_t>(n);
  board.part = sight == Sight::everything ? part_of_threads : part_of_processes;
  board.members = make<int32_t>(job, board.memory, n);
  board.seats = make<Seat>(job, board.memory, n);
  board.channels = make<Channel>(job, board.memory, n * n);
  std::copy(members.begin(), members.end(), job.at<int32_t>(board.members));
  for (size_t i = 0; i < n * n; ++i) {
    Channel& channel = job.at<Channel>(board.channels)[i];
    channel.sent_last = channel.received_last = job.offset_of(&channel.start);
  }
  return place;
}

// Everybody may make them when the first meeting is started; those of the quickest are the group's.
void SharedMemory::make_posts() {
  const size_t count = Post::count * static_cast<size_t>(size_);
  const Offset mine = job_->allocate(sizeof(Post) * count);
  std::uninitialized_value_construct_n(job_->at<Post>(mine), count);
  Offset none = 0;
  if (board_->posts.compare_exchange_strong(none, mine))
    job_->belongs(mine, board_->memory.blocks);
  else
    job_->give(mine);
}

std::byte* SharedMemory::grown(Stage& stage, size_t bytes) {
  if (stage.bytes < bytes) [[unlikely]] {
    if (stage.bytes) arena_->give(stage.place, stage.bytes);
    stage = {};
    const size_t room = std::bit_ceil(std::max(bytes, least_staged));
    stage = {arena_->take(room), room};
  }
  return job_->at<std::byte>(stage.place);
}

SharedMemory::SharedMemory(std::shared_ptr<Job> job, int member, Sight sight, Offset board)
    : job_(std::move(job)),
      board_(job_->at<Board>(board)),
      seats_(job_->at<Seat>(board_->seats)),
      members_(job_->at<int32_t>(board_->members)),
      rank_(member),
      size_(board_->size),
      part_(board_->part),
      sight_(sight),
      patience_(job_->patience()),
      arena_(std::make_shared<SharedArena>(job_, board_->memory)),
      places_(static_cast<size_t>(size_)),
      results_(places_),
      peers_(places_),
      under_way_(static_cast<size_t>(size_)),
      kept_(Post::count),
      first_kept_(seats_[rank_].started) {}

void SharedMemory::lay_out(Job& job, Sight sight) {
  std::vector<int> everybody(static_cast<size_t>(job.ranks()));
  std::iota(everybody.begin(), everybody.end(), 0);
  job.set_world(new_board(job, everybody, sight, 0));
}

std::unique_ptr<SharedMemory> SharedMemory::connect(std::shared_ptr<Job> job, int rank, Sight sight) {
  const Offset board = job->world();
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(job), rank, sight, board));
}

GlobalRank SharedMemory::global(GroupRank rank) const {
  require(rank.value >= 0 && rank.value < size_, "rank ", rank, " in a group of ", size_);
  return {members_[rank.value]};
}

std::string SharedMemory::description() const {
  if (job_->ranks() == 1) return "self (1 rank)";
  return std::string(sight_ == Sight::everything ? "threads" : "shared memory") + " (" + text(size_) + " ranks)";
}

void SharedMemory::Turn::take_step() {
  Slot& mine = slot();
  mine.fingerprint = fingerprint_;
  mine.filled.store(++seat_.steps, std::memory_order_seq_cst);
  const int n = group_.size_;
  int arrived = 0;
  const auto all = [&] {
    while (arrived < n && filled(arrived)) ++arrived;
    return arrived == n;
  };
  Bell& bell = group_.board_->bell;
  if (all()) {
    if (bell.anyone_asleep()) bell.ring();  // whoever comes last wakes those who gave up looking
    return compare(n);
  }
  bool asleep = false;
  wait_for(group_.patience_, bell, all, [&] {
    compare(n);
    asleep = true;
    Slot& awaited = group_.slot(arrived, seat_.steps - 1);
    job_.waits_for(me(), group_.members_[arrived], job_.offset_of(&awaited.filled), seat_.steps);
    job_.still_waiting(me());
  });
  if (asleep) job_.waits_no_more(me());
  compare(n);
}

void SharedMemory::Turn::compare(int peers) const {
  for (int r = 0; r < peers; ++r)
    if (filled(r) && group_.slot(r, seat_.steps - 1).fingerprint != fingerprint_) [[unlikely]]
      report();
}

// The others cannot go on either, so their last calls are the ones that meet here.
void SharedMemory::Turn::report() const {
  std::string calls;
  for (int r = 0; r < group_.size_; ++r)
    if (filled(r)) calls += "\n  rank " + text(group_.members_[r]) + " is in " + job_.doing(group_.members_[r]);
  job_.fail(me(),
            Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group are in different calls" + calls));
}

}  // namespace weft
