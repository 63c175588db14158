// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that Weft calls. Operations are accepted in groups only.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/emulated_card/communicator.h"
#include "tests/emulated_card/memory.h"
#include "tests/emulated_card/modules.h"

using namespace weft::emulated;

namespace {

struct Worlds {
  std::mutex mutex;
  std::vector<std::unique_ptr<World>> all;
};
Worlds& worlds() {
  static Worlds& instance = *new Worlds;
  return instance;
}

// The contents of a unique id.
struct IdContents {
  pid_t process;
  size_t world;
};

World* world_at(const ncclUniqueId& id) {
  IdContents place;
  std::memcpy(&place, id.internal, sizeof place);
  const std::lock_guard lock(worlds().mutex);
  return place.process == getpid() && place.world < worlds().all.size() ? worlds().all[place.world].get() : nullptr;
}

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::pair<ncclComm_t, Request>> requests;
};
thread_local Group group;

// Calls change(comm) for a communicator that is not in progress.
template <class Change> ncclResult_t at_rest(const char* call, ncclComm_t comm, Change change) {
  const std::string name = call;
  if (!comm) return refuse(ncclInvalidArgument, name + ": no communicator");
  const std::lock_guard lock(comm->world.mutex);
  if (comm->error() != ncclSuccess) return comm->error();
  if (comm->state() == ncclComm::State::at_rest) return change();
  return comm->fail(ncclInvalidArgument, name + ": the communicator has not said that it is at rest");
}

// What is wrong with an operation's memory, or nothing. One rank's elements may be in place.
const char* objection(const Operation& operation, size_t ranks, size_t rank, int card) {
  const bool gathers = operation.verb == Verb::all_gather, scatters = operation.verb == Verb::reduce_scatter;
  const size_t bytes = operation.bytes(), sent = operation.sent(ranks), received = operation.received(ranks);
  const std::byte *const from = operation.from, *const to = operation.to;
  if (bytes == 0) return nullptr;
  if ((from && card_of(from, sent) != card) || (to && card_of(to, received) != card))
    return "memory that is not on the communicator's card";
  if (!from || !to || from + (scatters ? rank * bytes : 0) == to + (gathers ? rank * bytes : 0)) return nullptr;
  return from < to + received && to < from + sent ? "memory that overlaps" : nullptr;
}

ncclResult_t ask(const char* call, ncclComm_t comm, Request request) {
  const std::string name = call;
  if (group.depth == 0) return refuse(ncclInvalidUsage, name + ": not between ncclGroupStart and ncclGroupEnd");
  const ncclResult_t result = at_rest(call, comm, [&] {
    const Operation& operation = request.operation;
    const int ranks = static_cast<int>(comm->world.ranks.size());
    const bool message = operation.verb == Verb::message;
    const int peer = message                             ? request.sender + request.receiver - comm->rank
                     : operation.verb == Verb::broadcast ? operation.variant
                                                         : comm->rank;
    const char* why = objection(operation, comm->world.ranks.size(), static_cast<size_t>(comm->rank), comm->card);
    if (peer < 0 || peer >= ranks || (message && peer == comm->rank)) why = "no such peer";
    if (!request.stream || request.stream->card() != comm->card) why = "no stream of the communicator's card";
    if (request.stream && request.stream->capture()) why = "a stream that is captured, which is not emulated";
    if (current_card != comm->card) why = "another card than the communicator's is current";
    if (why) return comm->fail(ncclInvalidArgument, name + ": " + why);
    count(operation.verb);
    if (message || operation.count > 0) group.requests.emplace_back(comm, request);
    return ncclSuccess;
  });
  if (group.error == ncclSuccess) group.error = result;
  return result;
}

const std::byte* given(const void* memory) { return static_cast<const std::byte*>(memory); }
std::byte* given(void* memory) { return static_cast<std::byte*>(memory); }

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22203;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}
const char* ncclGetLastError(ncclComm_t) { return last_refusal(); }

// ---- Communicators
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(worlds().mutex);
  const IdContents place{getpid(), worlds().all.size()};
  worlds().all.push_back(std::make_unique<World>());
  std::memcpy(id->internal, &place, sizeof place);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  World* const world = world_at(id);
  if (!world) return refuse(ncclInvalidArgument, "a unique id that ncclGetUniqueId has not given in this process");
  if (rank < 0 || rank >= ranks) return refuse(ncclInvalidArgument, "there is no such rank");
  const ncclConfig_t untouched = NCCL_CONFIG_INITIALIZER;
  if (!config || config->magic != untouched.magic || config->blocking != 0)
    return refuse(ncclInvalidArgument, "a configuration that is not initialized, or of a communicator that blocks");
  const std::lock_guard lock(world->mutex);
  auto& all = world->ranks;
  if (all.empty()) all.resize(static_cast<size_t>(ranks));
  if (all.size() != static_cast<size_t>(ranks) || all[static_cast<size_t>(rank)])
    return refuse(ncclInvalidUsage, "the ranks are not numbered, or count themselves differently");
  int card = 0;
  cudaGetDevice(&card);
  const auto here =
      std::find_if(all.begin(), all.end(), [&](const auto& other) { return other && other->card == card; });
  const bool taken = here != all.end();
  *comm = (all[static_cast<size_t>(rank)] = std::make_unique<ncclComm>(*world, rank, card)).get();
  if (taken) (*comm)->fail_all(ncclInvalidUsage, "two ranks are on card " + std::to_string(card));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!comm) return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
  const std::lock_guard lock(comm->world.mutex);
  if (comm->state() == ncclComm::State::closed)
    return refuse(ncclInvalidArgument, "ncclCommGetAsyncError: the communicator has been destroyed");
  const bool well = comm->error() == ncclSuccess;
  *state = !well ? comm->error() : comm->is_at_rest() ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return at_rest("ncclCommFinalize", comm, [&] {
    comm->finalize();
    return ncclInProgress;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  const std::lock_guard lock(comm->world.mutex);
  if (comm->state() != ncclComm::State::finalizing || !comm->is_at_rest())
    return refuse(ncclInvalidUsage, "ncclCommDestroy: the communicator has not said that it is finalized");
  comm->close();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!comm) return ncclSuccess;
  enter_context(comm->card);
  const std::lock_guard lock(comm->world.mutex);
  if (comm->state() == ncclComm::State::closed)
    return refuse(ncclInvalidArgument, "ncclCommAbort: the communicator has been destroyed");
  comm->close();
  return ncclSuccess;
}

// ---- Operations
ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, {});
  if (ended.error != ncclSuccess) return ended.error;
  for (const auto& [comm, request] : ended.requests) {
    enter_context(comm->card);
    const std::lock_guard lock(comm->world.mutex);
    comm->ask(request);
  }
  return ended.requests.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return ask("ncclAllGather", comm, {stream, {Verb::all_gather, given(from), given(to), count, type}});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::byte* const sent = comm && comm->rank == root ? given(from) : nullptr;
  return ask("ncclBroadcast", comm, {stream, {Verb::broadcast, sent, given(to), count, type, root}});
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return ask("ncclAllReduce", comm, {stream, {Verb::all_reduce, given(from), given(to), count, type, op}});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return ask("ncclReduceScatter", comm, {stream, {Verb::reduce_scatter, given(from), given(to), count, type, op}});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const int me = comm ? comm->rank : 0;
  return ask("ncclSend", comm, {stream, {Verb::message, given(from), nullptr, count, type}, me, peer});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  const int me = comm ? comm->rank : 0;
  return ask("ncclRecv", comm, {stream, {Verb::message, nullptr, given(to), count, type}, peer, me});
}
}
