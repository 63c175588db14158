// SPDX-License-Identifier: Apache-2.0
// Contexts and the pool.
#include <algorithm>
#include <new>
#include <utility>

#include "weft/engine/kernels/cuda/context.h"
#include "weft/engine/kernels/cuda/cuda_backend.h"
#include "weft/engine/kernels/cuda/dnn.h"
#include "weft/engine/kernels/cuda/graph.h"
#include "weft/engine/tensor/out_of_memory.h"

namespace weft {
namespace cuda {
namespace {

constexpr size_t alignment = 256;  // what cudaMalloc gives

// All contexts, and those that no thread leases. Never destroyed, because blocks come back while the program ends.
struct Contexts {
  std::mutex mutex;
  std::vector<Context*> all, idle;
};
Contexts& contexts() {
  static Contexts& instance = *new Contexts;
  return instance;
}

// These have no destructors, so that a static tensor can still read them after this thread's Lease has been destroyed.
thread_local int chosen_device = 0;
thread_local Context* leased = nullptr;

struct Lease {
  ~Lease() { end(); }
  static void begin() {
    std::lock_guard lock(contexts().mutex);
    auto& [mutex, all, idle] = contexts();
    check(cudaSetDevice(chosen_device), "cudaSetDevice");
    const auto free = std::find_if(idle.begin(), idle.end(), [](Context* c) { return c->device() == chosen_device; });
    if (free != idle.end()) {
      leased = *free;
      idle.erase(free);
    } else {
      leased = all.emplace_back(new Context(chosen_device));
    }
  }
  static void end() {
    if (!leased) return;
    leased->while_waiting({});
    std::lock_guard lock(contexts().mutex);
    contexts().idle.push_back(std::exchange(leased, nullptr));
  }
};

// The contexts of a card that no thread leases. While this lives, none can lease them. No lock is held meanwhile, since
// their memory may be in use until a peer's card has done its part.
struct BorrowedContexts {
  explicit BorrowedContexts(int device) {
    std::lock_guard lock(contexts().mutex);
    auto& idle = contexts().idle;
    const auto first = std::partition(idle.begin(), idle.end(), [=](Context* c) { return c->device() != device; });
    all.assign(first, idle.end());
    idle.erase(first, idle.end());
  }
  BorrowedContexts(const BorrowedContexts&) = delete;
  ~BorrowedContexts() {
    std::lock_guard lock(contexts().mutex);
    contexts().idle.insert(contexts().idle.end(), all.begin(), all.end());
  }
  std::vector<Context*> all;
};

}  // namespace

void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears an error that is not sticky, so that the next call does not report it again
  fail({"cuda: ", call, " failed: ", cudaGetErrorString(code)});
}

Context& context() {
  if (!leased) [[unlikely]] {
    thread_local Lease lease;
    Lease::begin();
  }
  return *leased;
}

Block::Block(void* data, int size_class, Device device, Context& owner)
    : Storage(data, SizeClass::bytes(size_class), device, &Context::give),
      owner(&owner),
      size_class(size_class),
      used(data, SizeClass::bytes(size_class)) {}

Context::Context(int device) : device_(device) {
  check(cudaDeviceGetAttribute(&cache_bytes_, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(BadIndex), cudaHostAllocPortable), "cudaHostAlloc");
  bad_index_ = new (memory) BadIndex;
}

cublasHandle_t Context::blas() {
  if (!blas_) [[unlikely]] {
    check(cublas().create(&blas_), "cublasCreate");
    check(cublas().set_stream(blas_, stream_), "cublasSetStream");  // first, because it resets the workspace
    blas_workspace_ = from_system(blas_workspace_bytes);
    check(cublas().set_workspace(blas_, blas_workspace_, blas_workspace_bytes), "cublasSetWorkspace");
    const int exact = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    check(cublas().set_math_mode(blas_, static_cast<cublasMath_t>(exact)), "cublasSetMathMode");
  }
  return blas_;
}

void BlockPool::add_to(MemoryStatistics& sum) const {
  sum.live_bytes += live.load(std::memory_order_relaxed);
  sum.peak_bytes += peak.load(std::memory_order_relaxed);
  sum.system_calls += system_calls.load(std::memory_order_relaxed);
}

Block* Context::take(size_t bytes, Device device) {
  const int size_class = SizeClass::of(std::max(bytes, alignment));
  require(size_class < SizeClass::count, "cuda: no card has memory for ", bytes, " bytes");
  const int64_t size = static_cast<int64_t>(SizeClass::bytes(size_class));
  BlockPool& pool = this->pool(device);
  Block* block = capturing_ && device == Device::cuda ? capturing_->take(size_class) : nullptr;
  if (!block) block = cached(pool, size_class);
  if (!block) {
    if (capturing_) fail_in_graph("take ", size, " bytes of new memory");
    const auto whole = static_cast<size_t>(size);
    void* memory = device == Device::cuda ? from_system(whole) : pinned_from_system(whole);
    block = new (pool::take(sizeof(Block))) Block(memory, size_class, device, *this);
  }
  if (capturing_ && device == Device::cuda) capturing_->adopt(*block);
  block->renew(bytes);
  block->used.begin(bytes);
  const int64_t live = pool.live.fetch_add(size, std::memory_order_relaxed) + size;
  if (live > pool.peak.load(std::memory_order_relaxed)) pool.peak.store(live, std::memory_order_relaxed);
  return block;
}

// A block that its owner's thread frees can be reused at once, because its next use comes later on the same stream. The
// stream of another thread may still use the blocks that this thread frees, so they come back with an event to wait
// for. Staging memory needs none, because its users wait for their copies. Destructors call this, so it reports no
// error if the device can no longer record events.
void Context::give(Storage* storage) {
  Block* block = static_cast<Block*>(storage);
  Context* owner = block->owner;
  block->used.end();
  owner->pool(block->device)
      .live.fetch_sub(static_cast<int64_t>(SizeClass::bytes(block->size_class)), std::memory_order_relaxed);
  if (leased == owner && owner->capturing_) owner->capturing_->count_freed(*block);
  if (leased == owner) return owner->keep(block);
  if (leased && block->device == Device::cuda) {  // without a lease, this thread has no stream
    block->last_use = leased->borrow_event();
    block->lender = leased;
    cudaEventRecord(block->last_use, leased->stream_);
  }
  std::lock_guard lock(owner->mutex_);
  block->next = std::exchange(owner->returned_, block);
}

void Context::keep(Block* block) {
  Block*& list =
      block->graph ? block->graph->free_list(block->size_class) : pool(block->device).lists[block->size_class];
  block->next = std::exchange(list, block);
}

// A capture can wait for no other thread's work.
Block* Context::cached(BlockPool& pool, int size_class) {
  Block*& list = pool.lists[size_class];
  if (!list && !capturing_) collect();
  Block* block = list;
  if (!block) return nullptr;
  list = block->next;
  await(*block);
  return block;
}

void Context::collect() {
  std::unique_lock lock(mutex_);
  Block* block = std::exchange(returned_, nullptr);
  lock.unlock();
  while (block) keep(std::exchange(block, block->next));
}

void Context::await(Block& block) {
  if (!block.last_use) return;
  check(cudaStreamWaitEvent(stream_, block.last_use, 0), "cudaStreamWaitEvent");
  block.lender->give_back(std::exchange(block.last_use, nullptr));
}

cudaEvent_t Context::borrow_event() {
  std::unique_lock lock(mutex_);
  cudaEvent_t event = nullptr;
  if (events_.empty()) {
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  } else {
    event = events_.back();
    events_.pop_back();
  }
  return event;
}

void Context::give_back(cudaEvent_t event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void* Context::from_system(size_t bytes) {
  void* memory = nullptr;
  pool(Device::cuda).system_calls.fetch_add(1, std::memory_order_relaxed);
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();
  trim();
  const BorrowedContexts idle(device_);
  for (Context* other : idle.all) other->trim();
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  const std::string reason = cudaGetErrorString(cudaGetLastError());
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  throw OutOfMemory("cuda: no memory for " + text(bytes) + " bytes: " + text(pool(Device::cuda).live.load()) +
                    " are live in this rank, " + text(free) + " of " + text(total) + " are free on card " +
                    text(device_) + " (" + reason + ")");
}

void* Context::pinned_from_system(size_t bytes) {
  void* memory = nullptr;
  pool(Device::cpu).system_calls.fetch_add(1, std::memory_order_relaxed);
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
  return memory;
}

void Context::await_other_threads() {
  collect();
  for (Block* list : pool(Device::cuda).lists)
    for (Block* block = list; block; block = block->next) await(*block);
}

void Context::trim() {
  await_other_threads();
  await_work();
  for (Block*& list : pool(Device::cuda).lists)
    while (list) {
      Block* block = std::exchange(list, list->next);
      check(cudaFree(block->data), "cudaFree");
      block->~Block();
      pool::give(block, sizeof(Block));
    }
}

static MemoryStatistics statistics(Device device) {
  std::lock_guard lock(contexts().mutex);
  MemoryStatistics sum;
  for (const Context* context : contexts().all) context->pool(device).add_to(sum);
  return sum;
}

}  // namespace cuda

std::string CudaBackend::description() const {
  cudaDeviceProp properties;
  cuda::check(cudaGetDeviceProperties(&properties, cuda::context().device()), "cudaGetDeviceProperties");
  const size_t version = cuda::cudnn() ? cuda::cudnn()->version() : 0;
  const std::string dnn = version ? "cuDNN " + text(version / 10000) + "." + text(version / 100 % 100) : "no cuDNN";
  return std::string(properties.name) + ", " + text(properties.totalGlobalMem >> 30) + " GiB, " + dnn;
}

Storage* CudaBackend::allocate(size_t bytes) { return cuda::context().take(bytes); }

Storage* CudaBackend::allocate_staging(size_t bytes) { return cuda::context().take(bytes, Device::cpu); }

MemoryStatistics CudaBackend::memory() const { return cuda::statistics(Device::cuda); }
MemoryStatistics CudaBackend::staging_memory() const { return cuda::statistics(Device::cpu); }

void CudaBackend::use_card(int index) {
  int count = 0;
  cuda::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  require(index >= 0 && index < count, "cuda: there is no card ", index, " among ", count);
  if (std::exchange(cuda::chosen_device, index) != index) cuda::Lease::end();
}

int CudaBackend::card() { return cuda::chosen_device; }

}  // namespace weft
