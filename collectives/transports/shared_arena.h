#pragma once
// Blocks of a job's memory for one rank: for tensors that peers read in place, and for messages under way. Given back
// blocks are kept for reuse by the same rank.
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/transports/job.h"
#include "engine/pool.h"
#include "engine/storage.h"

namespace weft {

// What a group has of its job's memory, in that memory. It goes with the last rank that holds the group: its transport,
// or a tensor in its memory.
struct GroupMemory {
  int32_t group = 0;
  std::atomic<int32_t> holders{0};  // 0 for everybody's group, which stays as long as the job
  Blocks::Chain blocks{0};
};

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  SharedArena(std::shared_ptr<Job> job, GroupMemory& group) : job_(std::move(job)), group_(group) {}
  SharedArena(const SharedArena&) = delete;
  ~SharedArena() {
    if (group_.holders > 0 && --group_.holders == 0) job_->give_group(group_.group, group_.blocks);
  }

  Offset take(size_t bytes);
  void give(Offset block, size_t bytes);
  StorageHandle allocate(size_t bytes);  // keeps the job's memory alive

  // Memory that several ranks hold, zeros at first: taken by one, shared by so many, who must each share it once.
  Offset take_common(size_t bytes, int holders);
  StorageHandle share_common(Offset block, size_t bytes);
  bool is_common(const void* p);  // or within it

 private:
  struct Held;
  StorageHandle hold(Offset block, void* data, size_t bytes, void (*release)(Storage*));

  const std::shared_ptr<Job> job_;
  GroupMemory& group_;
  std::mutex mutex_;                                // a tensor may be dropped by another thread than the rank's
  std::map<int, std::vector<Offset>> free_;         // by size class
  std::vector<std::span<const std::byte>> common_;  // what is shared
};

}  // namespace weft
