// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/shared/shared_arena.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>

namespace weft {
namespace {

constexpr size_t header = 64;  // before common memory, for the number of ranks that hold it

}  // namespace

// The storage of a tensor in a block of an arena.
struct SharedArena::BlockStorage : Storage {
  std::shared_ptr<SharedArena> arena;
  Offset block;
};

Offset SharedArena::take(size_t bytes) {
  const int size_class = SizeClass::of(bytes);
  {
    const std::lock_guard lock(mutex_);
    if (auto& blocks = free_[size_class]; !blocks.empty()) {
      const Offset block = blocks.back();
      blocks.pop_back();
      return block;
    }
  }
  const Offset block = job_->allocate(SizeClass::bytes(size_class));
  job_->add_to_group(block, group_.blocks);
  return block;
}

void SharedArena::give(Offset block, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_[SizeClass::of(bytes)].push_back(block);
}

StorageHandle SharedArena::hold(Offset block, void* data, size_t bytes, void (*release)(Storage*)) {
  void* place = pool::take(sizeof(BlockStorage));
  return StorageHandle(new (place) BlockStorage{{data, bytes, Device::cpu, release}, shared_from_this(), block});
}

StorageHandle SharedArena::allocate(size_t bytes) {
  const Offset block = take(bytes);
  return hold(block, job_->at<void>(block), bytes, [](Storage* storage) {
    auto* held = static_cast<BlockStorage*>(storage);
    held->arena->give(held->block, held->bytes);
    held->~BlockStorage();
    pool::give(held, sizeof(BlockStorage));
  });
}

Offset SharedArena::take_common(size_t bytes, int holders) {
  const Offset block = take(header + bytes);
  std::memset(job_->at<void>(block), 0, header + bytes);
  new (job_->at<void>(block)) std::atomic<int64_t>(holders);
  return block;
}

StorageHandle SharedArena::share_common(Offset block, size_t bytes) {
  std::byte* data = job_->at<std::byte>(block) + header;
  {
    const std::lock_guard lock(mutex_);
    common_.emplace_back(data, bytes);
  }
  return hold(block, data, bytes, [](Storage* storage) {
    auto* held = static_cast<BlockStorage*>(storage);
    SharedArena& arena = *held->arena;
    {
      const std::lock_guard lock(arena.mutex_);
      std::erase_if(arena.common_, [&](const auto& range) { return range.data() == held->data; });
    }
    if (arena.job_->at<std::atomic<int64_t>>(held->block)->fetch_sub(1) == 1)
      arena.give(held->block, header + held->bytes);
    held->~BlockStorage();
    pool::give(held, sizeof(BlockStorage));
  });
}

bool SharedArena::is_common(const void* p) {
  const auto* byte = static_cast<const std::byte*>(p);
  const std::lock_guard lock(mutex_);
  return std::any_of(common_.begin(), common_.end(), [&](const auto& range) {
    return std::greater_equal<>()(byte, range.data()) && std::less<>()(byte, range.data() + range.size());
  });
}

}  // namespace weft
