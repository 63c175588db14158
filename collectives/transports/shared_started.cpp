// Meetings in two halves in shared memory, and memory that all ranks have in common.
#include <cstring>

#include "collectives/transports/board.h"
#include "engine/backend.h"

namespace weft {

// Between its two halves the meeting is only its posts. Whoever drops it unfinished has read enough.
class SharedMemory::Posting final : public Transport::Started {
 public:
  Posting(SharedMemory& group, const Call& call, size_t longest, uint64_t number)
      : group_(group), call_(call), longest_(longest), number_(number) {}
  ~Posting() override { read_by_me(); }
  bool ready() const override {
    for (int r = 0; r < group_.size_; ++r)
      if (!posted(r)) return false;
    return true;
  }
  void finish(Read read) override;

  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* place, size_t bytes) { pool::give(place, bytes); }

 private:
  Post& post(int r) const { return group_.post(r, number_); }
  bool posted(int r) const { return post(r).posted.load(std::memory_order_seq_cst) > number_; }
  void compare() const;
  void read_by_me();

  SharedMemory& group_;
  const Call call_;
  const size_t longest_;
  const uint64_t number_;
  bool read_ = false;
};

void SharedMemory::Posting::finish(Read read) {
  const int me = group_.members_[group_.rank_], n = group_.size_;
  group_.job_->begin(me, call_, group_.board_->group, n);
  for (int r = 0; r < n; ++r) group_.await(post(r).posted, number_ + 1, r, [&] { compare(); });
  compare();
  for (int r = 0; r < n; ++r) group_.peers_[static_cast<size_t>(r)] = group_.job_->address(post(r).bytes);
  read({0, longest_, group_.peers_});
  read_by_me();
  group_.job_->end(me);
}

void SharedMemory::Posting::compare() const {
  const uint64_t mine = post(group_.rank_).fingerprint;
  bool agree = true;
  std::string calls;
  for (int r = 0; r < group_.size_; ++r) {
    if (!posted(r)) continue;
    agree = agree && post(r).fingerprint == mine;
    if (agree) [[likely]]
      continue;
    calls.clear();
    for (int i = 0; i < group_.size_; ++i)
      if (posted(i))
        calls += "\n  rank " + text(group_.members_[i]) + " has started call " + text(post(i).call.sequence) +
                 " of group " + text(group_.board_->group) + " (" + text(group_.size_) +
                 " ranks): " + post(i).call.text();
  }
  if (!agree)
    group_.job_->fail(
        group_.members_[group_.rank_],
        Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group have started different calls" + calls));
}

void SharedMemory::Posting::read_by_me() {
  if (read_) return;
  read_ = true;
  group_.kept_[number_ % Post::count].open = false;
  for (int r = 0; r < group_.size_; ++r) post(r).readings.fetch_add(1, std::memory_order_seq_cst);
  if (group_.board_->bell.anyone_asleep()) group_.board_->bell.ring();
}

std::unique_ptr<Transport::Started> SharedMemory::start(const Call& asked, Tensor mine, size_t longest) {
  Seat& seat = seats_[rank_];
  const uint64_t number = seat.started;
  if (!board_->posts.load(std::memory_order_relaxed)) make_posts();
  Post& post = this->post(rank_, number);
  Kept& kept = kept_[number % Post::count];
  require(!kept.open, asked.verb, ": ", size_t{Post::count},
          " collectives of this group have been started since one that still waits to be finished");
  Call call = asked;
  call.sequence = ++seat.calls;
  job_->begin(members_[rank_], call, board_->group, size_);
  await(post.readings, number / Post::count * static_cast<uint64_t>(size_), -1, [] {});
  forget_read();
  kept = {keep(std::move(mine)), true};
  post.bytes = job_->offset_of(kept.shown.data());
  post.call = call;
  post.fingerprint = agreement(call, longest);
  post.posted.store(++seat.started, std::memory_order_seq_cst);
  if (board_->bell.anyone_asleep()) board_->bell.ring();
  job_->end(members_[rank_]);
  return std::make_unique<Posting>(*this, call, longest, number);
}

Tensor SharedMemory::keep(Tensor mine) const {
  if (visible({mine.data<std::byte>(), mine.bytes()}) && mine.unshared()) return mine;
  Tensor copy = sight_ == Sight::everything ? Tensor::like(mine)
                                            : Tensor(arena_->allocate(mine.bytes()), 0, mine.shape(), mine.dtype());
  copy.copy_from(mine);
  if (!keeps_stream_order()) backend(copy.device()).synchronize();
  return copy;
}

// In the order in which they were posted, up to the first that somebody has yet to read.
void SharedMemory::forget_read() {
  for (; first_kept_ < seats_[rank_].started; ++first_kept_) {
    const uint64_t rounds = first_kept_ / Post::count + 1;
    if (post(rank_, first_kept_).readings.load(std::memory_order_acquire) < rounds * static_cast<uint64_t>(size_))
      return;
    kept_[first_kept_ % Post::count].shown = {};
  }
}

// Others may still have to read what this rank has shown. Among processes it stays where it is, since nothing is taken
// from this arena any more.
SharedMemory::~SharedMemory() {
  forget_read();
  for (; sight_ == Sight::everything && first_kept_ < seats_[rank_].started; ++first_kept_)
    job_->outlive(board_->group, std::move(kept_[first_kept_ % Post::count].shown));
}

StorageHandle SharedMemory::allocate_common(size_t bytes, Site site) {
  const int64_t size[] = {static_cast<int64_t>(bytes)};
  const Call call = with_counts(describe(Verb::allocate_common, site), size);
  const Offset made = rank_ == 0 ? arena_->take_common(bytes, size_) : 0;
  Offset place = made;
  meet(call, std::as_bytes(std::span(&made, 1)), sizeof made,
       [&](const Part& part) { std::memcpy(&place, part.peers[0], sizeof place); });
  return arena_->share_common(place, bytes);
}

}  // namespace weft
