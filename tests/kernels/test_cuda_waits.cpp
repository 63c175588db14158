// SPDX-License-Identifier: Apache-2.0
// A traced training step on a card: nothing in it makes the host wait for the card or allocates system memory. The
// linker routes the CUDA runtime calls that can do so through here (--wrap, in meson.build).
#include <cuda_runtime_api.h>

#include <deque>
#include <mutex>

#include "tests/kernels/cuda_checks.h"
#include "tests/support/on_cards.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/transports/self.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/contrastive/nt_xent.h"
#include "weft/models/encoders.h"
#include "weft/optim/accumulate/cached.h"
#include "weft/optim/accumulate/exact_gradients.h"
#include "weft/optim/parallel/data_parallel.h"

namespace {

struct Trace {
  std::mutex mutex;
  std::vector<std::string> calls;

  static Trace& instance() {
    static Trace trace;
    return trace;
  }
  static void note(const char* call) {
    const std::lock_guard lock(instance().mutex);
    instance().calls.emplace_back(call);
  }
};

// The calls since the last trace, with their counts.
std::string taken() {
  const std::lock_guard lock(Trace::instance().mutex);
  std::vector<std::string> calls = std::exchange(Trace::instance().calls, {});
  std::sort(calls.begin(), calls.end());
  std::string text;
  for (auto first = calls.begin(); first != calls.end();) {
    const auto last = std::upper_bound(first, calls.end(), *first);
    text += std::to_string(last - first) + " " + *first + "\n";
    first = last;
  }
  return text;
}

}  // namespace

extern "C" {

#define TRACED(function, parameters, ...)    \
  cudaError_t __real_##function parameters;  \
  cudaError_t __wrap_##function parameters { \
    Trace::note(#function);                  \
    return __real_##function(__VA_ARGS__);   \
  }
TRACED(cudaStreamSynchronize, (cudaStream_t stream), stream)
TRACED(cudaMalloc, (void** memory, size_t bytes), memory, bytes)
TRACED(cudaFree, (void* memory), memory)
TRACED(cudaHostAlloc, (void** memory, size_t bytes, unsigned flags), memory, bytes, flags)
#undef TRACED

cudaError_t __real_cudaEventSynchronize(cudaEvent_t event);
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  Trace::note(cudaEventQuery(event) == cudaSuccess ? "cudaEventSynchronize of what is done" : "cudaEventSynchronize");
  return __real_cudaEventSynchronize(event);
}

cudaError_t __real_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const auto pageable = [](const void* place) {
    cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, place) == cudaSuccess && attributes.type == cudaMemoryTypeUnregistered;
  };
  Trace::note(pageable(to) || pageable(from) ? "cudaMemcpyAsync of pageable memory" : "cudaMemcpyAsync");
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}
}

namespace weft {
namespace {

class Step {
 public:
  explicit Step(Communicator& comm) : comm_(comm) {}

  void operator()() {
    Tape tape;
    declare_group(tape, comm_);
    const auto rank = static_cast<uint64_t>(comm_.rank().value);
    const auto view = [&](uint64_t number) {  // images that the host generates
      const Tensor images = Tensor::uniform({20, 28, 28, 1}, key_.fork(2 * steps_ + number).fork(rank));
      return (*head_)((*encoder_)(tape.constant(images.to(Device::cuda))));
    };
    const Var first = view(0), second = view(1);
    loss_ = nt_xent(first, second, {}, comm_);
    tape.backward(loss_, training_.gradients());
    training_.step(0.01);
    ++steps_;
  }
  double loss() const { return loss_.value().item(); }

 private:
  Communicator& comm_;
  const Random key_{3};
  const Init init_{.key = key_, .device = Device::cuda};
  std::unique_ptr<Sequential> encoder_ = conv_encoder("encoder", 1, 4, init_);
  std::unique_ptr<Sequential> head_ = projection_head("head", 32, 24, 16, init_);
  DataParallel training_{{{parameters(), AdamW{}}}, comm_};
  uint64_t steps_ = 0;
  Var loss_;

  std::vector<Parameter*> parameters() const {
    std::vector<Parameter*> all = encoder_->parameters();
    for (Parameter* parameter : head_->parameters()) all.push_back(parameter);
    return all;
  }
};

// The calls of all ranks in a step after warm-up.
std::string calls_of_a_step(Communicator& comm) {
  Step step(comm);
  for (int i = 0; i < 3; ++i) step();
  backend(Device::cuda).synchronize();
  comm.barrier();
  taken();
  comm.barrier();
  step();
  comm.barrier();
  const std::string calls = taken();  // one rank's calls; empty on the others
  comm.barrier();
  require(std::isfinite(step.loss()), "the loss is ", step.loss());
  return calls;
}

void expect_no_waits(const std::string& calls) {
  WARN("in a step, beside launches:\n" << calls);
  for (const char* wait : {"StreamSynchronize", "Malloc", "HostAlloc", "Free", "pageable", "EventSynchronize\n"})
    CHECK_THAT(calls, !Catch::Contains(wait));
  CHECK_THAT(calls, Catch::Contains("cudaMemcpyAsync"));
}

TEST_CASE("a training step on a card never waits for it and allocates none of its memory") {
  SKIP_WITHOUT_A_CARD();
  Communicator alone(connect_self());
  expect_no_waits(calls_of_a_step(alone));
  CHECK_THAT(taken(), Catch::Contains("cudaStreamSynchronize"));  // reads the loss after the step
}

// How often the host has waited for the card.
int64_t waits_among(const std::string& calls) {
  CHECK_THAT(calls, !Catch::Contains("EventSynchronize\n"));
  const size_t waits = calls.find("cudaStreamSynchronize");
  return waits == std::string::npos ? 0 : std::stoi(calls.substr(calls.rfind('\n', waits) + 1));
}

// In a step with its batch encoded in four parts.
int64_t waits_of_a_cached_step(Recompute recompute) {
  Communicator comm(connect_self());
  const Init init{.key = {3}, .device = Device::cuda};
  const auto head = projection_head("head", 32, 24, 16, init);
  Gradients gradients;
  const Tensor first = Tensor::uniform({24, 32}, {5}, 0, 1, DType::f32, Device::cuda),
               second = affine(first, 2, 1).value();
  const auto encode = [&](int64_t i, Tape& tape) -> Features {
    const auto part = [&](const Tensor& x) { return (*head)(tape.constant(x.slice(6 * i, 6 * i + 6))); };
    return {part(first), part(second)};
  };
  const auto loss = [&](Tape& tape, const Features& all) {
    declare_group(tape, comm);
    return nt_xent(all[0], all[1], {}, comm);
  };
  for (int i = 0; i < 3; ++i) {
    backend(Device::cuda).synchronize();
    taken();
    cached_backward(4, encode, loss, gradients, {}, recompute);
  }
  return waits_among(taken());
}

TEST_CASE("recomputed features are compared with one wait for all of them, and kept features with none") {
  SKIP_WITHOUT_A_CARD();
  CHECK(waits_of_a_cached_step(Recompute::yes) == 1);
  CHECK(waits_of_a_cached_step(Recompute::no) == 0);
}

// In an exact gradient sum over two blocks.
int64_t waits_of_an_exact_sum(int parameters) {
  Communicator alone(connect_self());
  std::deque<Parameter> all;
  std::vector<Parameter*> pointers;
  for (int i = 0; i < parameters; ++i)
    pointers.push_back(&all.emplace_back(std::to_string(i), Tensor::full({5}, i, DType::f32, Device::cuda)));
  ExactGradients blocks(pointers, alone);
  for (int block = 0; block < 2; ++block) {
    Tape tape;
    Var loss = sum(tape.watch(all[0]));
    for (const Parameter& p : all) loss = loss + sum(tape.watch(p));
    tape.backward(loss, blocks.gradients());
  }
  Gradients sums;
  backend(Device::cuda).synchronize();
  taken();
  blocks.hand_over(sums);
  const std::string calls = taken();
  CHECK(sums[all[0]].values() == std::vector<double>(5, 4));
  return waits_among(calls);
}

TEST_CASE("exact gradient sums are handed over without a wait for the card") {
  SKIP_WITHOUT_A_CARD();
  for (const int parameters : {1, 40}) CHECK(waits_of_an_exact_sum(parameters) == 0);
}

TEST_CASE("a step of ranks connected by NCCL never waits for a card and allocates none of its memory") {
  std::string calls;
  std::mutex mutex;
  on_cards_of(1, [&](std::unique_ptr<Transport> group) {
    Communicator comm(connect_nccl(std::move(group)));
    const std::string seen = calls_of_a_step(comm);
    const std::lock_guard lock(mutex);
    calls += seen;
  });
  if (usable_cards() > 0) expect_no_waits(calls);
}

}  // namespace
}  // namespace weft
