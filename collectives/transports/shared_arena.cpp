#include "collectives/transports/shared_arena.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>

namespace weft {
namespace {

constexpr size_t header = 64;  // of common memory: how many ranks hold it

}  // namespace

// A block of an arena as a tensor's memory.
struct SharedArena::Held : Storage {
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
  job_->belongs(block, group_.blocks);
  return block;
}

void SharedArena::give(Offset block, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_[SizeClass::of(bytes)].push_back(block);
}

StorageHandle SharedArena::hold(Offset block, void* data, size_t bytes, void (*release)(Storage*)) {
  void* place = pool::take(sizeof(Held));
  return StorageHandle(new (place) Held{{data, bytes, Device::cpu, release}, shared_from_this(), block});
}

StorageHandle SharedArena::allocate(size_t bytes) {
  const Offset block = take(bytes);
  return hold(block, job_->at<void>(block), bytes, [](Storage* storage) {
    auto* held = static_cast<Held*>(storage);
    held->arena->give(held->block, held->bytes);
    held->~Held();
    pool::give(held, sizeof(Held));
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
    auto* held = static_cast<Held*>(storage);
    SharedArena& arena = *held->arena;
    {
      const std::lock_guard lock(arena.mutex_);
      std::erase_if(arena.common_, [&](const auto& range) { return range.data() == held->data; });
    }
    if (arena.job_->at<std::atomic<int64_t>>(held->block)->fetch_sub(1) == 1)
      arena.give(held->block, header + held->bytes);
    held->~Held();
    pool::give(held, sizeof(Held));
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
