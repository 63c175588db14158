#include "collectives/transports/shared_arena.h"

namespace weft {

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
  return job_->allocate(SizeClass::bytes(size_class));
}

void SharedArena::give(Offset block, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_[SizeClass::of(bytes)].push_back(block);
}

StorageHandle SharedArena::allocate(size_t bytes) {
  using Owner = std::shared_ptr<SharedArena>;
  const Offset block = take(bytes);
  const auto release = [](Storage* storage) {
    auto* owner = static_cast<Owner*>(storage->context);
    (*owner)->give((*owner)->job_->offset_of(storage->data), storage->bytes);
    delete owner;
    delete storage;
  };
  return StorageHandle(new Storage(job_->at<void>(block), bytes, Device::cpu, release, new Owner(shared_from_this())));
}

}  // namespace weft
