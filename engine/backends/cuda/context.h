#pragma once
// What one rank owns on its card: a stream, a cuBLAS handle, staging memory for uploads, and its tensors' pool.
//
// A thread leases a context on first use and hands it back when it ends; the next thread takes it over, stream and all.
// Contexts are never destroyed, so a block always has an owner to go back to and stream order is never broken.
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "engine/backends/cuda/blas.h"
#include "engine/pool.h"
#include "engine/storage.h"

namespace weft::cuda {

void check(cudaError_t code, const char* call);

class Context;

// Device memory, or pinned host memory for staging, and its header, which stay together for good.
struct Block : Storage {
  Block(void* data, int size_class, Device device, Context& owner);

  Block* next = nullptr;
  Context* const owner;
  const int size_class;
  cudaEvent_t last_use = nullptr;  // set when another thread freed it: its work up to then
  Context* lender = nullptr;       // where that event goes back to
};

// The blocks of one kind that a context has made: those that nobody uses, by size class, and how much there is.
struct BlockPool {
  Block* lists[SizeClass::count] = {};
  std::atomic<int64_t> live = 0, peak = 0, system_calls = 0;

  void add_to(MemoryStatistics& sum) const;
};

class Context {
 public:
  explicit Context(int device);

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  cublasHandle_t blas();

  Block* take(size_t bytes, Device device = Device::cuda);  // pinned memory for the host
  void upload(void* to, const char* from, size_t bytes);
  void trim();  // waits for the stream and returns every cached block of the card to the system
  const BlockPool& pool(Device device) const { return pools_[static_cast<int>(device)]; }

  static void give(Storage* storage);  // Storage::release

 private:
  static constexpr size_t slot_bytes = size_t{512} << 10;
  static constexpr int slots = 16;

  BlockPool& pool(Device device) { return pools_[static_cast<int>(device)]; }
  void keep(Block* block);
  Block* cached(BlockPool& pool, int size_class);
  void collect();  // takes over what other threads freed
  void await(Block& block);
  void* from_system(size_t bytes);
  void* pinned_from_system(size_t bytes);
  cudaEvent_t borrow_event();

  const int device_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  char* staging_ = nullptr;  // `slots` pinned slots, used in turn
  cudaEvent_t slot_free_[slots] = {};
  int slot_ = 0;

  BlockPool pools_[2];

  std::mutex mutex_;  // guards what other threads touch:
  Block* returned_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

Context& context();  // this thread's

// Memory for the duration of one verb. It may be reused as soon as the verb returns, since that is later on the stream.
template <class T> class Scratch {
 public:
  explicit Scratch(int64_t count) : block_(context().take(static_cast<size_t>(count) * sizeof(T))) {}
  T* data() const { return static_cast<T*>(block_->data); }

 private:
  StorageHandle block_;
};

}  // namespace weft::cuda
