#include "collectives/transports/board.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

// Parts are small enough for the second-level cache to hold a part of each of a few ranks. Threads stage only what is
// too little to be worth a second step.
constexpr size_t part_of_processes = size_t{256} << 10, part_of_threads = size_t{16} << 10;

}  // namespace

Offset SharedMemory::new_board(Job& job, const std::vector<int>& members, Sight sight) {
  const size_t n = members.size();
  const Offset place = job.allocate(sizeof(Board));
  Board& board = *job.at<Board>(place);
  board.group = job.new_group();
  board.size = static_cast<int32_t>(n);
  board.part = sight == Sight::everything ? part_of_threads : part_of_processes;
  board.members = job.allocate(sizeof(int32_t) * n);
  board.seats = job.allocate(sizeof(Seat) * n);
  board.posts = job.allocate(sizeof(Post) * Post::count * n);
  board.channels = job.allocate(sizeof(Channel) * n * n);
  board.staging = job.allocate(board.part * 4 * n);
  std::copy(members.begin(), members.end(), job.at<int32_t>(board.members));
  for (size_t i = 0; i < n * n; ++i) {
    Channel& channel = job.at<Channel>(board.channels)[i];
    channel.sent_last = channel.received_last = job.offset_of(&channel.start);
  }
  return place;
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
      arena_(std::make_shared<SharedArena>(job_)),
      places_(static_cast<size_t>(size_)),
      results_(places_),
      peers_(places_),
      under_way_(static_cast<size_t>(size_)),
      kept_(Post::count),
      first_kept_(seats_[rank_].started) {}

void SharedMemory::lay_out(Job& job, Sight sight) {
  std::vector<int> everybody(static_cast<size_t>(job.ranks()));
  std::iota(everybody.begin(), everybody.end(), 0);
  job.set_world(new_board(job, everybody, sight));
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
