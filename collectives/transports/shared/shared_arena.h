// SPDX-License-Identifier: Apache-2.0
#pragma once
// Blocks of a job's memory for one rank: for tensors that peers read in place, and for messages. The rank reuses blocks
// that were given back.
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "weft/collectives/transports/job/job.h"
#include "weft/engine/tensor/pool.h"
#include "weft/engine/tensor/storage.h"

namespace weft {

// The blocks of a job's memory that belong to a group. This list is in that memory, too. The blocks are freed when no
// rank holds the group any more; a rank holds it by a transport, or by a tensor in its memory.
struct GroupMemory {
  int32_t group = 0;
  std::atomic<int32_t> holders{0};  // 0 for the group of all ranks, which lives as long as the job
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

  // Memory that several ranks hold, zeros at first. One rank takes it; then each of the `holders` calls share_common
  // once.
  Offset take_common(size_t bytes, int holders);
  StorageHandle share_common(Offset block, size_t bytes);
  bool is_common(const void* p);  // whether p is within common memory

 private:
  struct BlockStorage;
  StorageHandle hold(Offset block, void* data, size_t bytes, void (*release)(Storage*));

  const std::shared_ptr<Job> job_;
  GroupMemory& group_;
  std::mutex mutex_;                                // another thread than the rank's may destroy a tensor
  std::map<int, std::vector<Offset>> free_;         // by size class
  std::vector<std::span<const std::byte>> common_;  // the ranges of common memory that this rank holds
};

}  // namespace weft
