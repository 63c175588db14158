// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of one rank on its card: a stream, a cuBLAS handle, staging memory for uploads, and the pool of its
// tensors.
//
// A thread leases a context on first use and returns it when it ends; another thread may then lease it. Contexts are
// never destroyed, so a block can always return to its owner, and its uses stay in the order of one stream.
#include <cuda_runtime_api.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "weft/engine/kernels/cuda/biased_product.h"
#include "weft/engine/kernels/cuda/blas.h"
#include "weft/engine/kernels/cuda/used_bytes.h"
#include "weft/engine/kernels/indices.h"
#include "weft/engine/tensor/pool.h"
#include "weft/engine/tensor/storage.h"

namespace weft::cuda {

void check(cudaError_t code, const char* call);

class Context;
class ConvolutionPlans;
class Graph;

// A header and its memory, which is device memory, or pinned host memory for staging.
struct Block : Storage {
  Block(void* data, int size_class, Device device, Context& owner);

  Block* next = nullptr;
  Context* const owner;
  const int size_class;
  const UsedBytes used;
  cudaEvent_t last_use = nullptr;  // set if another thread has freed the block, after the work of that thread
  Context* lender = nullptr;       // the owner of that event
  Graph* graph = nullptr;          // for which it is reserved, if it is
};

// The blocks of one kind that a context has made: free lists by size class, and statistics.
struct BlockPool {
  Block* lists[SizeClass::count] = {};
  std::atomic<int64_t> live = 0, peak = 0, system_calls = 0;

  void add_to(MemoryStatistics& sum) const;
};

// The first bad index since the last wait, in host memory that kernels write.
struct BadIndex {
  uint64_t verb = 0;  // the number of the verb that read it; 0: no index was bad
  int64_t position = 0, index = 0, bound = 0;
  IndexNames names = {};
  unsigned writers = 0;  // 1 while a thread writes
};

class Context {
 public:
  explicit Context(int device);

  int device() const { return device_; }
  int64_t cache_bytes() const { return cache_bytes_; }  // of the card's second-level cache
  cudaStream_t stream() const { return stream_; }

  static constexpr size_t blas_workspace_bytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper
  cublasHandle_t blas();
  void* blas_workspace() const { return blas_workspace_; }  // once blas() has been called
  std::map<BiasedProduct, BiasedAlgorithm>& biased_products() { return biased_products_; }
  ConvolutionPlans& convolutions();  // of cuDNN, if the machine has it

  Block* take(size_t bytes, Device device = Device::cuda);  // for Device::cpu, pinned memory
  void upload(void* to, const char* from, size_t bytes);
  void download(void* to, const void* from, size_t bytes);
  std::function<void()> start_download(void* to, const void* from, size_t bytes);  // waits for the copy
  void synchronize();
  std::function<void()> record_event();
  void while_waiting(std::function<bool()> go_on) { go_on_ = std::move(go_on); }
  BadIndex& bad_index() { return *bad_index_; }
  uint64_t next_verb() { return ++verbs_; }  // that reads indices
  void trim();  // waits for the stream and returns every cached block of the card to the system
  const BlockPool& pool(Device device) const { return pools_[static_cast<int>(device)]; }

  // From now on the stream's work is captured, in memory of `graph`.
  void begin_capture(Graph& graph);
  cudaError_t end_capture(cudaGraph_t* result);
  Graph* capturing() const { return capturing_; }  // null between captures

  void keep(Block* block);             // in a free list
  static void give(Storage* storage);  // Storage::release

 private:
  static constexpr size_t slot_bytes = size_t{512} << 10;
  static constexpr int slots = 16;

  BlockPool& pool(Device device) { return pools_[static_cast<int>(device)]; }
  void await_work();
  void check_results();  // throws what makes them invalid: a bad index that a kernel has found, or what go_on_ throws
  Block* cached(BlockPool& pool, int size_class);
  void await_other_threads();
  void collect();  // adds the blocks that other threads have freed to the free lists
  void await(Block& block);
  void* from_system(size_t bytes);
  void* pinned_from_system(size_t bytes);
  cudaEvent_t borrow_event();
  void give_back(cudaEvent_t event);
  template <class Done> void go_on_until(Done done);

  const int device_;
  int cache_bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  void* blas_workspace_ = nullptr;
  std::map<BiasedProduct, BiasedAlgorithm> biased_products_;
  ConvolutionPlans* convolutions_ = nullptr;
  char* staging_ = nullptr;  // `slots` pinned slots, used cyclically
  cudaEvent_t slot_free_[slots] = {};
  int slot_ = 0;
  BadIndex* bad_index_ = nullptr;
  uint64_t verbs_ = 0;
  Graph* capturing_ = nullptr;
  std::function<bool()> go_on_;  // while this thread waits; returns whether anything is left

  BlockPool pools_[2];

  std::mutex mutex_;  // guards the members below, which other threads use, too
  Block* returned_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

Context& context();  // of this thread

// Memory for one verb. It may be reused when the verb returns, because its next use comes later on the stream.
template <class T> class Scratch {
 public:
  explicit Scratch(int64_t count) : block_(context().take(static_cast<size_t>(count) * sizeof(T))) {}
  T* data() const { return static_cast<T*>(block_->data); }

 private:
  StorageHandle block_;
};

}  // namespace weft::cuda
