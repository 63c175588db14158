#pragma once
// Ranks that see common memory: threads of one process, or processes of one node that have mapped the same file.
//
// A group meets at a board. Every rank has a seat there with two slots, which it uses in turn, step by step. In each
// step a rank fills its slot, with the fingerprint of its call and a few bytes or the place of more bytes, then marks
// it as filled, and waits until all slots of the step are. That this is the only waiting follows from the two slots:
// whoever fills the slot of step s + 2 has seen all ranks arrive at step s + 1, and they did so after they had read
// step s.
//
// Bytes that others can see where they are, which is everything among threads, are shown in place, at the price of one
// more step in which all say that they have read. Everything else is copied into staging memory, part by part.
//
// Beside its slots a seat has a ring of posts for meetings that are only started (shared_started.cpp): a rank posts
// what it shows and goes on; whoever finishes the meeting reads all posts of its number and says so on each of them.
#include <array>
#include <memory>
#include <vector>

#include "collectives/transports/job.h"
#include "collectives/transports/shared_arena.h"

namespace weft {

class SharedMemory : public Transport {
 public:
  // Among threads every address means the same to all. Processes share only the job's memory.
  enum class Sight { everything, the_job };

  // Makes the board of all ranks of a new job.
  static void lay_out(Job& job, Sight sight);
  // This rank's view of it. All state is in the job's memory, so a second view can take over from a first.
  static std::unique_ptr<SharedMemory> connect(std::shared_ptr<Job> job, int rank, Sight sight);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  GlobalRank global(GroupRank rank) const override;
  std::string description() const override;
  ~SharedMemory() override;
  void meet(const Call& call, Bytes mine, size_t longest, Read read) override;
  std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest) override;
  void combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) override;
  void send(Call call, GroupRank to, Bytes bytes) override;
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override;
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  bool shows_device_memory() const override { return sight_ == Sight::everything; }
  bool keeps_stream_order() const override { return size_ == 1; }
  StorageHandle allocate_shown(size_t bytes) override;
  StorageHandle allocate_common(size_t bytes, Site site) override;
  std::string busy_with(const std::string& what) override;
  void finalize(Site site) override;

 private:
  struct Board;
  struct Slot;
  struct Seat;
  struct Stage;
  struct Channel;
  struct Message;
  struct Shown;
  struct Post;
  class Turn;     // one call: in the log from its beginning to its end, and all of its steps
  class Posting;  // a started call

  static Offset new_board(Job& job, const std::vector<int>& members, Sight sight, int holders);
  SharedMemory(std::shared_ptr<Job> job, int member, Sight sight, Offset board);
  Slot& slot(int r, uint64_t step) const;
  Channel& channel(int from, int to) const;
  std::byte* staged(int r, uint64_t step) const;
  std::byte* folded(int r, uint64_t step) const;
  std::byte* grown(Stage& stage, size_t bytes);  // this rank's, at least so many

  bool visible(Bytes bytes) const;
  void show(Turn& turn, Bytes mine, Bytes result) const;
  struct Sights {
    bool any, all, results;
  };                           // whose bytes, and whether all results, are seen in place
  Sights look(uint64_t step);  // at what everybody shows: fills places_ and results_
  std::span<const std::byte* const> peers(size_t first, uint64_t step, size_t skipped);  // at byte `first`
  void meet_in_one_step(Turn& turn, Bytes mine, size_t longest, Read read);
  void stage(uint64_t step, Bytes mine, size_t first, size_t last);
  void make_posts();
  Post& post(int r, uint64_t number) const;
  Tensor keep(Tensor mine) const;  // where all can see it
  void forget_read();
  // Until *word, which `owner` raises, or several ranks do if it is -1, has reached the value.
  template <class Meanwhile>
  void await(const std::atomic<uint64_t>& word, uint64_t value, int owner, Meanwhile&& meanwhile);

  std::shared_ptr<Job> job_;
  Board* board_;
  Seat* seats_;
  const int32_t* members_;  // global ranks
  int rank_, size_;
  size_t part_;
  Sight sight_;
  Patience patience_;
  std::shared_ptr<SharedArena> arena_;
  std::vector<const std::byte*> places_, results_;  // where others' bytes are, or null where they are staged
  std::vector<const std::byte*> peers_;
  std::vector<std::vector<Offset>> under_way_;  // per rank: messages to it whose memory is not mine again yet
  struct Kept {
    Tensor shown;
    bool open = false;  // not finished by this rank
  };
  std::vector<Kept> kept_;  // by post
  uint64_t first_kept_;     // the oldest post that somebody may still read
};

}  // namespace weft
