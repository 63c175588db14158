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

class SharedArena : public std::enable_shared_from_this<SharedArena> {
 public:
  explicit SharedArena(std::shared_ptr<Job> job) : job_(std::move(job)) {}

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

  std::shared_ptr<Job> job_;
  std::mutex mutex_;                                // a tensor may be dropped by another thread than the rank's
  std::map<int, std::vector<Offset>> free_;         // by size class
  std::vector<std::span<const std::byte>> common_;  // what is shared
};

}  // namespace weft
