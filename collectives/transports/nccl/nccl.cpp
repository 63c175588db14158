// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/nccl/nccl.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <bit>
#include <cstring>
#include <thread>

#include "weft/collectives/transports/job/waiting.h"
#include "weft/collectives/transports/nccl/nccl_card.h"
#include "weft/collectives/transports/nccl/nccl_group.h"
#include "weft/collectives/transports/nccl/watch.h"
#include "weft/collectives/unfinished.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

using std::chrono::milliseconds;

ncclDataType_t nccl_type(DType type) {
  switch (type) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    default: return ncclUint8;
  }
}

ncclRedOp_t nccl_operation(ReduceOp op) {
  switch (op) {
    case ReduceOp::product: return ncclProd;
    case ReduceOp::maximum: return ncclMax;
    case ReduceOp::minimum: return ncclMin;
    default: return ncclSum;
  }
}

// The communicator does not block, so its calls may still be in progress when they return.
bool is_ok(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

Fault fault_of(ncclResult_t result, const Call& call) {
  return Fault(
      result == ncclRemoteError ? exit_codes::peer_died : exit_codes::exception,
      std::string("nccl: ") + ncclGetErrorString(result) + " in " + call.text() + ": " + ncclGetLastError(nullptr));
}

std::string library() {
  int version = 0;
  ncclGetVersion(&version);
  return "NCCL " + text(version / 10000) + "." + text(version / 100 % 100) + "." + text(version % 100);
}

// Beside the work of this rank, so that collectives in two halves run while it computes. One for all groups: a card
// then does their calls one after the other, in the order in which it gets them (launch_order.h).
class CommunicationStream {
 public:
  CommunicationStream() {
    my_device();
    int least_priority = 0, greatest_priority = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least_priority, &greatest_priority),
               "cudaDeviceGetStreamPriorityRange");
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest_priority),
               "cudaStreamCreateWithPriority");
  }
  CommunicationStream(const CommunicationStream&) = delete;
  ~CommunicationStream() { cudaStreamDestroy(stream_); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Nccl : public CardExchange, public Watch::Watched {
 public:
  Nccl(Transport& host, std::shared_ptr<const CommunicationStream> stream, std::shared_ptr<CardFault> fault,
       milliseconds deadline);
  Nccl(const Nccl&) = delete;
  ~Nccl() override;

  Address address() override;
  void connect(const Call& call, const Address& address) override;
  Mark mark() override;
  Ticket gather(const Call& call, Mark after, const std::byte* mine, std::span<const size_t> counts,
                std::byte* all) override;
  Ticket swap(const Call& call, Mark after, const std::byte* mine, std::span<const Transport::Range> out,
              std::span<const size_t> counts, std::byte* received) override;
  Ticket reduce(const Call& call, Mark after, std::span<const std::byte> mine, std::span<std::byte> result) override;
  bool is_idle() override { return has_enqueued() && watch_->has_room(); }
  void settle() override;
  bool is_done(Ticket ticket) override { return watch_->look(ticket); }
  void await(Ticket ticket) noexcept override;
  void close() override;

 private:
  struct Events {
    cudaEvent_t ready = nullptr, done = nullptr;  // after this rank's work before the exchange; after the exchange
  };
  // What NCCL has been asked for. Until it is done, the communicator accepts nothing else.
  struct InProgress {
    Call call;
    Ticket ticket = 0;  // 0: to connect or to close
  };

  cudaEvent_t new_event();
  template <class Calls> ncclResult_t grouped(Calls calls);
  template <class Calls> Ticket enqueue(const Call& call, Mark after, Calls calls);
  ncclResult_t state();
  bool has_enqueued();
  void close_communicator();

  void begin_watch() override { cudaSetDevice(device_); }
  Watch::Stage stage(size_t slot) override;
  std::optional<Fault> error(const Call& call) override;
  void failed(const Fault& fault) override { fault_->set(fault); }
  void abort() override;

  const milliseconds deadline_;
  const int rank_, size_, device_;
  const std::shared_ptr<Unfinished> unfinished_;
  const std::shared_ptr<const CommunicationStream> of_card_;
  const cudaStream_t stream_;
  const std::shared_ptr<CardFault> fault_;
  std::vector<cudaEvent_t> all_events_, spare_events_;
  std::array<Events, Watch::capacity> events_;
  ncclComm_t comm_ = nullptr;
  std::optional<InProgress> in_progress_;
  std::optional<Watch> watch_;
};

Nccl::Nccl(Transport& host, std::shared_ptr<const CommunicationStream> stream, std::shared_ptr<CardFault> fault,
           milliseconds deadline)
    : deadline_(deadline),
      rank_(host.rank()),
      size_(host.size()),
      device_(my_device()),
      unfinished_(host.unfinished()),
      of_card_(std::move(stream)),
      stream_(*of_card_),
      fault_(std::move(fault)) {
  for (Events& events : events_) events.done = new_event();
  watch_.emplace(*this, deadline, host.global(GroupRank{rank_}));
}

cudaEvent_t Nccl::new_event() {
  cudaEvent_t& event = all_events_.emplace_back();
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

CardExchange::Address Nccl::address() {
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); !is_ok(result))
    throw fault_of(result, describe(Verb::broadcast, Site::here("NCCL's address"), 0));
  return std::bit_cast<Address>(id);
}

void Nccl::connect(const Call& call, const Address& address) {
  my_device();
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = [&] {
    const auto lock = watch_->hold();
    return ncclCommInitRankConfig(&comm_, size_, std::bit_cast<ncclUniqueId>(address), rank_, &config);
  }();
  if (!is_ok(result)) watch_->fail(fault_of(result, call));
  in_progress_ = {call};
}

CardExchange::Mark Nccl::mark() {
  if (spare_events_.empty()) spare_events_.push_back(new_event());
  const cudaEvent_t event = spare_events_.back();
  spare_events_.pop_back();
  check_cuda(cudaEventRecord(event, my_stream()), "cudaEventRecord");
  return event;
}

// Closing waits until peers have received their data. After an exception it does not, because they may never do so. If
// no caller has got a fault, this rank may have computed with wrong values since, so the process ends.
Nccl::~Nccl() {
  try {
    if (!std::uncaught_exceptions()) close();
  } catch (const Fault& fault) {
    end_within_call(fault.exit_code, fault.what(), [](int) {});
  }
  watch_.reset();
  abort();
  for (const cudaEvent_t event : all_events_) cudaEventDestroy(event);
}

void Nccl::close() {
  if (!fault_->has_been_thrown()) watch_->throw_unreported();
  close_communicator();
}

void Nccl::close_communicator() try {
  if (!comm_) return;
  settle();
  {
    const auto lock = watch_->hold();
    ncclCommFinalize(comm_);
  }
  in_progress_ = {describe(Verb::finalize, Site::here("NCCL"))};
  settle();
  const auto lock = watch_->hold();
  ncclCommDestroy(std::exchange(comm_, nullptr));
} catch (const Fault&) {  // a peer that closes later than the deadline has all it needs from this rank
}

// Of the communicator, or why it cannot be told.
ncclResult_t Nccl::state() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

// Whether NCCL has enqueued the operation on its stream.
bool Nccl::has_enqueued() {
  if (!in_progress_) return true;
  const ncclResult_t now = [&] {
    const auto lock = watch_->hold();
    return state();
  }();
  if (now == ncclInProgress) return false;
  const InProgress done = *std::exchange(in_progress_, std::nullopt);
  if (now != ncclSuccess) watch_->fail(fault_of(now, done.call));
  if (done.ticket > 0) {
    check_cuda(cudaEventRecord(events_[Watch::slot(done.ticket)].done, stream_), "cudaEventRecord");
    watch_->begin(done.call);
  }
  return true;
}

// It may wait for peers that do the same for another group, so this rank goes on with all that is unfinished.
void Nccl::settle() {
  const auto until = std::chrono::steady_clock::now() + deadline_;
  for (; !has_enqueued(); let_others_run()) {
    if (std::chrono::steady_clock::now() > until)
      watch_->fail(Fault(exit_codes::deadline, "deadline: NCCL has waited " + text(deadline_.count()) +
                                                   " ms for its peers in " + in_progress_->call.text()));
    unfinished_->go_on();
  }
}

template <class Calls> ncclResult_t Nccl::grouped(Calls calls) {
  const auto lock = watch_->hold();
  ncclGroupStart();
  const ncclResult_t called = calls(), ended = ncclGroupEnd();
  return is_ok(called) ? ended : called;
}

template <class Calls> CardExchange::Ticket Nccl::enqueue(const Call& call, Mark after, Calls calls) {
  settle();
  for (; !watch_->has_room(); std::this_thread::sleep_for(std::chrono::microseconds(20))) unfinished_->go_on();
  const Ticket ticket = watch_->next();
  cudaEvent_t& ready = events_[Watch::slot(ticket)].ready;
  if (ready) spare_events_.push_back(ready);
  ready = static_cast<cudaEvent_t>(after);
  check_cuda(cudaStreamWaitEvent(stream_, ready, 0), "cudaStreamWaitEvent");
  if (const ncclResult_t result = grouped(calls); !is_ok(result)) watch_->fail(fault_of(result, call));
  in_progress_ = {call, ticket};
  return ticket;
}

void Nccl::await(Ticket ticket) noexcept {
  if (!watch_->is_done(ticket)) cudaStreamWaitEvent(my_stream(), events_[Watch::slot(ticket)].done, 0);
}

CardExchange::Ticket Nccl::gather(const Call& call, Mark after, const std::byte* mine, std::span<const size_t> counts,
                                  std::byte* all) {
  const bool even = std::equal(counts.begin() + 1, counts.end(), counts.begin());
  return enqueue(call, after, [&] {
    if (even) return ncclAllGather(mine, all, counts[0], ncclUint8, comm_, stream_);
    ncclResult_t result = ncclSuccess;
    std::byte* place = all;
    for (size_t r = 0; r < counts.size() && is_ok(result); place += counts[r++])
      if (counts[r] > 0) result = ncclBroadcast(mine, place, counts[r], ncclUint8, static_cast<int>(r), comm_, stream_);
    return result;
  });
}

CardExchange::Ticket Nccl::swap(const Call& call, Mark after, const std::byte* mine,
                                std::span<const Transport::Range> out, std::span<const size_t> counts,
                                std::byte* received) {
  return enqueue(call, after, [&] {
    ncclResult_t result = ncclSuccess;
    std::byte* place = received;
    for (size_t r = 0; r < out.size() && is_ok(result); place += counts[r++]) {
      const int peer = static_cast<int>(r);
      if (peer == rank_) continue;
      if (out[r].size() > 0) result = ncclSend(mine + out[r].first, out[r].size(), ncclUint8, peer, comm_, stream_);
      if (counts[r] > 0 && is_ok(result)) result = ncclRecv(place, counts[r], ncclUint8, peer, comm_, stream_);
    }
    return result;
  });
}

CardExchange::Ticket Nccl::reduce(const Call& call, Mark after, std::span<const std::byte> mine,
                                  std::span<std::byte> result) {
  const auto reduction = call.verb == Verb::all_reduce ? ncclAllReduce : ncclReduceScatter;
  return enqueue(call, after, [&] {
    return reduction(mine.data(), result.data(), result.size() / size_of(call.dtype), nccl_type(call.dtype),
                     nccl_operation(call.op), comm_, stream_);
  });
}

Watch::Stage Nccl::stage(size_t slot) {
  if (cudaEventQuery(events_[slot].done) != cudaErrorNotReady) return Watch::Stage::done;
  return cudaEventQuery(events_[slot].ready) == cudaErrorNotReady ? Watch::Stage::queued : Watch::Stage::running;
}

std::optional<Fault> Nccl::error(const Call& call) {
  const ncclResult_t now = comm_ ? state() : ncclSuccess;
  if (is_ok(now)) return {};
  return fault_of(now, call);
}

void Nccl::abort() {
  if (comm_) ncclCommAbort(std::exchange(comm_, nullptr));
}

}  // namespace

std::unique_ptr<Transport> connect_nccl(std::unique_ptr<Transport> group, milliseconds deadline, SetUp set_up) {
  const std::string obstacle = obstacle_to_nccl(*group);
  require(obstacle.empty(), "transport nccl: ", obstacle);
  const NcclGroup::Where where{.set_up = set_up};
  const auto connect = [deadline, fault = where.fault, stream = std::make_shared<const CommunicationStream>()](
                           Transport& host) { return std::make_unique<Nccl>(host, stream, fault, deadline); };
  return std::make_unique<NcclGroup>(std::move(group), connect, library(), where);
}

}  // namespace weft
