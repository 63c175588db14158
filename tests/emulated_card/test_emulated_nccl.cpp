// SPDX-License-Identifier: Apache-2.0
// The emulated NCCL is late and refuses misuse; otherwise passing tests with it would say little. One thread drives all
// ranks here, because nothing in NCCL blocks.
#include <nccl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_card/on_card.h"

using namespace on_card;
using Catch::Contains;

namespace {

constexpr size_t length = 1000;

ncclResult_t connect(ncclComm_t& comm, int rank, int ranks, ncclUniqueId id, int card) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  cudaSetDevice(card);
  const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  cudaSetDevice(0);
  return result;
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  return id;
}

// The communicator's final state, or in progress if that does not change.
ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 100 && state == ncclInProgress; ++i) ncclCommGetAsyncError(comm, &state);
  return state;
}

struct Rank {
  int card = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *from = nullptr, *to = nullptr;
};

// Each rank r has `length` numbers at `from`, all r + 1, and room for those of all ranks.
struct Ranks : std::vector<Rank> {
  explicit Ranks(int ranks) : std::vector<Rank>(static_cast<size_t>(ranks)) {
    const ncclUniqueId id = new_id();
    int r = 0;
    for (auto& [card, comm, stream, from, to] : *this) {
      CHECK(connect(comm, r, ranks, id, r) == ncclInProgress);
      cudaSetDevice(card = r);
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      cudaMalloc(reinterpret_cast<void**>(&from), length * sizeof(float));
      cudaMalloc(reinterpret_cast<void**>(&to), size() * length * sizeof(float));
      const std::vector<float> values(length, static_cast<float>(++r));
      cudaMemcpyAsync(from, values.data(), length * sizeof(float), cudaMemcpyHostToDevice, stream);
    }
    cudaSetDevice(0);
    for (const Rank& rank : *this) CHECK(state_of(rank.comm) == ncclSuccess);
  }
  ~Ranks() {
    for (const auto& [card, comm, stream, from, to] : *this) {
      ncclCommAbort(comm);
      cudaStreamDestroy(stream);
      cudaFree(from);
      cudaFree(to);
    }
  }
};

// Runs work() while the rank's card is current.
template <class Work> auto on_card_of(const Rank& rank, Work work) {
  cudaSetDevice(rank.card);
  const auto result = work();
  cudaSetDevice(0);
  return result;
}

// The last received number when the rank's stream is done.
float last_of(const Rank& rank, size_t count) {
  return on_card_of(rank, [&] {
    float value = 0;
    cudaMemcpyAsync(&value, rank.to + count - 1, sizeof value, cudaMemcpyDeviceToHost, rank.stream);
    return value;
  });
}

template <class Ask> ncclResult_t grouped(const Rank& rank, Ask ask) {
  return on_card_of(rank, [&] {
    ncclGroupStart();
    ask();
    return ncclGroupEnd();
  });
}
ncclResult_t gather(const Rank& rank) {
  return grouped(rank, [&] { ncclAllGather(rank.from, rank.to, length, ncclFloat32, rank.comm, rank.stream); });
}
void gather_on_all(const Ranks& ranks) {
  for (const Rank& rank : ranks) gather(rank);
  for (const Rank& rank : ranks) CHECK(state_of(rank.comm) == ncclSuccess);
}

}  // namespace

TEST_CASE("NCCL enqueues an operation when its communicator is no longer in progress, and reads data in stream order") {
  const Ranks ranks(2);
  for (const Rank& rank : ranks) gather(rank);
  for (const Rank& rank : ranks) CHECK(std::isnan(last_of(rank, length)));
  cudaMemcpyAsync(ranks[0].from, ranks[1].from, length * sizeof(float), cudaMemcpyDeviceToDevice, ranks[0].stream);
  for (const Rank& rank : ranks) CHECK(state_of(rank.comm) == ncclSuccess);
  CHECK(last_of(ranks[1], length) == 2);  // rank 0's value, set after the group was requested
}

TEST_CASE("NCCL's first group waits for the peers' groups before it is enqueued, later ones do not") {
  const Ranks ranks(2);
  gather(ranks[0]);
  CHECK(state_of(ranks[0].comm) == ncclInProgress);
  gather(ranks[1]);
  for (const Rank& rank : ranks) CHECK(state_of(rank.comm) == ncclSuccess);
  for (const Rank& rank : ranks) {
    gather(rank);
    CHECK(state_of(rank.comm) == ncclSuccess);
  }
  CHECK(last_of(ranks[0], 2 * length) == 2);
}

TEST_CASE("an NCCL communicator is in progress at first, even without work") {
  const Ranks ranks(1);
  ncclResult_t state = ncclSuccess;
  gather(ranks[0]);
  ncclCommGetAsyncError(ranks[0].comm, &state);
  CHECK(state == ncclInProgress);
  CHECK(state_of(ranks[0].comm) == ncclSuccess);
}

TEST_CASE("a rank's stream proceeds as soon as a peer waits for it") {
  const Ranks ranks(2);
  gather_on_all(ranks);
  const Event of_card[2] = {Event(0), Event(1)};
  for (const bool waits_already : {false, true}) {
    double shortest = 1;  // in seconds; a late stream always takes 0.05
    for (size_t i = 0; i < 10; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Event& done = of_card[i % 2];
      for (const size_t r : {i % 2, 1 - i % 2}) {
        gather(ranks[r]);
        CHECK(state_of(ranks[r].comm) == ncclSuccess);
        if (r == i % 2) on_card_of(ranks[r], [&] { return cudaEventRecord(done.handle, ranks[r].stream); });
        if (waits_already) cudaEventQuery(done.handle);
        if (waits_already) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      CHECK(cudaEventSynchronize(done.handle) == cudaSuccess);
      shortest = std::min(shortest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    CHECK(shortest < 0.03);
  }
}

TEST_CASE("NCCL messages, broadcasts and reductions of every type arrive") {
  const Ranks ranks(3);
  const auto all = [&](size_t received, auto ask) {
    int r = 0;
    for (const Rank& rank : ranks) grouped(rank, [&] { ask(rank, r++); });
    for (const Rank& rank : ranks) CHECK(state_of(rank.comm) == ncclSuccess);
    std::vector<float> last;
    for (const Rank& rank : ranks) last.push_back(last_of(rank, received));
    return last;
  };
  CHECK(all(length, [](auto& rank, int r) {
          ncclSend(rank.from, length, ncclFloat32, (r + 1) % 3, rank.comm, rank.stream);
          ncclRecv(rank.to, length, ncclFloat32, (r + 2) % 3, rank.comm, rank.stream);
        }) == std::vector{3.0f, 1.0f, 2.0f});
  CHECK(all(length, [](auto& rank, int) {
          ncclBroadcast(rank.from, rank.to, length, ncclFloat32, 1, rank.comm, rank.stream);
        }) == std::vector(3, 2.0f));
  const auto reduced = [&](ncclDataType_t type, size_t numbers, ncclRedOp_t op) {
    return all(
        1, [&](auto& rank, int) { ncclAllReduce(rank.from, rank.to, numbers, type, op, rank.comm, rank.stream); })[2];
  };
  CHECK(reduced(ncclFloat32, length, ncclSum) == 6);
  CHECK(reduced(ncclFloat32, length, ncclProd) == 6);
  CHECK(reduced(ncclFloat32, length, ncclMin) == 1);
  CHECK(reduced(ncclBfloat16, 2 * length, ncclSum) == 6);  // the lower halves are zero
  CHECK(reduced(ncclUint8, 4 * length, ncclMax) == std::bit_cast<float>(0x40800000u));
  CHECK(reduced(ncclInt64, length / 2, ncclMax) == 3);
}

TEST_CASE("each rank gets its part of what NCCL reduces and scatters") {
  const Ranks ranks(3);
  gather_on_all(ranks);  // the numbers of ranks 0, 1 and 2: 1, 2 and 3, `length` of each
  for (const Rank& rank : ranks)
    grouped(rank,
            [&] { ncclReduceScatter(rank.to, rank.from, length, ncclFloat32, ncclProd, rank.comm, rank.stream); });
  for (const Rank& rank : ranks) CHECK(state_of(rank.comm) == ncclSuccess);
  for (size_t r = 0; r < ranks.size(); ++r) {
    Rank result = ranks[r];
    result.to = result.from;
    CHECK(last_of(result, length) == std::pow(static_cast<float>(r + 1), 3.0f));
  }
}

TEST_CASE("mismatched NCCL operations are an error on every rank and end waits on streams") {
  const auto state_after = [](auto ask) {
    const Ranks ranks(2);
    gather_on_all(ranks);
    grouped(ranks[0], [&] { ask(ranks[0], 0); });
    CHECK(state_of(ranks[0].comm) == ncclSuccess);
    grouped(ranks[1], [&] { ask(ranks[1], 1); });
    for (const Rank& rank : ranks) cudaStreamSynchronize(rank.stream);
    CHECK(state_of(ranks[0].comm) == state_of(ranks[1].comm));
    CHECK(gather(ranks[0]) == state_of(ranks[0].comm));
    return state_of(ranks[0].comm);
  };
  const auto reduce = [&](std::array<size_t, 2> count, std::array<ncclDataType_t, 2> type,
                          std::array<ncclRedOp_t, 2> op) {
    return state_after([=](const Rank& rank, size_t r) {
      ncclAllReduce(rank.from, rank.to, count[r], type[r], op[r], rank.comm, rank.stream);
    });
  };
  CHECK(reduce({9, 10}, {ncclFloat32, ncclFloat32}, {ncclSum, ncclSum}) == ncclInvalidUsage);
  CHECK(reduce({9, 9}, {ncclFloat32, ncclFloat64}, {ncclSum, ncclSum}) == ncclInvalidUsage);
  CHECK(reduce({9, 9}, {ncclFloat32, ncclFloat32}, {ncclSum, ncclMax}) == ncclInvalidUsage);
  CHECK(state_after([](const Rank& rank, int r) {
          ncclBroadcast(rank.from, rank.to, 9, ncclFloat32, r, rank.comm, rank.stream);
        }) == ncclInvalidUsage);
  CHECK(state_after([](const Rank& rank, int r) {
          if (r) gather(rank);
          if (!r) ncclBroadcast(rank.from, rank.to, length, ncclFloat32, 0, rank.comm, rank.stream);
        }) == ncclInvalidUsage);
  CHECK(state_after([](const Rank& rank, int r) {
          if (r) ncclSend(rank.from, 9, ncclFloat32, 0, rank.comm, rank.stream);
          if (!r) ncclRecv(rank.to, 8, ncclFloat32, 1, rank.comm, rank.stream);
        }) == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(nullptr), Contains("ranks 0 and 1"));
}

TEST_CASE("NCCL refuses communicators in progress or closed, and operations outside of groups") {
  const Ranks ranks(2);
  const auto& [card, comm, stream, from, to] = ranks[0];
  CHECK(ncclAllGather(from, to, 9, ncclFloat32, comm, stream) == ncclInvalidUsage);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(ncclCommDestroy(comm) == ncclInvalidUsage);
  CHECK(gather(ranks[0]) == ncclInProgress);
  CHECK(gather(ranks[0]) == ncclInvalidArgument);
  CHECK_THAT(ncclGetLastError(comm), Contains("at rest"));
  CHECK(state_of(comm) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
}

TEST_CASE("NCCL refuses overlapping or foreign memory, streams of other cards, and peers out of range") {
  const auto gathered = [](size_t count, auto from_and_to) {
    const Ranks ranks(2);
    const auto [from, to] = from_and_to(ranks[1].from, ranks[1].to);
    return grouped(ranks[1], [&, from = from, to = to] {
      ncclAllGather(from, to, count, ncclFloat32, ranks[1].comm, ranks[1].stream);
    });
  };
  const auto sent = [](int peer) {
    const Ranks ranks(2);
    return grouped(ranks[1], [&] { ncclSend(ranks[1].from, 9, ncclFloat32, peer, ranks[1].comm, ranks[1].stream); });
  };
  const auto with_peers = [](bool memory, bool stream) {
    const Ranks ranks(2);
    return grouped(ranks[1], [&] {
      ncclAllGather(ranks[memory ? 0 : 1].from, ranks[1].to, 9, ncclFloat32, ranks[1].comm,
                    ranks[stream ? 0 : 1].stream);
    });
  };
  CHECK(with_peers(false, false) == ncclInProgress);
  CHECK(with_peers(true, false) == ncclInvalidArgument);
  CHECK(with_peers(false, true) == ncclInvalidArgument);
  std::vector<float> host(length);
  CHECK(gathered(9, [](float* from, float* to) { return std::pair(from, to); }) == ncclInProgress);
  CHECK(gathered(9, [&](float* from, float*) { return std::pair(from, host.data()); }) == ncclInvalidArgument);
  CHECK(gathered(5000, [](float* from, float* to) { return std::pair(from, to); }) == ncclInvalidArgument);
  CHECK(gathered(9, [](float*, float* to) { return std::pair(to, to); }) == ncclInvalidArgument);
  CHECK(gathered(9, [](float*, float* to) { return std::pair(to + 9, to); }) == ncclInProgress);
  const auto scattered = [](size_t count, size_t from, size_t to) {
    const Ranks ranks(2);
    return grouped(ranks[1], [&] {
      ncclReduceScatter(ranks[1].to + from, ranks[1].to + to, count, ncclFloat32, ncclSum, ranks[1].comm,
                        ranks[1].stream);
    });
  };
  CHECK(scattered(9, 0, 18) == ncclInProgress);
  CHECK(scattered(9, 0, 9) == ncclInProgress);  // in place
  CHECK(scattered(9, 0, 0) == ncclInvalidArgument);
  CHECK(scattered(9, 0, 17) == ncclInvalidArgument);
  CHECK(scattered(length, length, 0) == ncclInvalidArgument);
  CHECK(sent(0) == ncclInProgress);
  CHECK(sent(1) == ncclInvalidArgument);
  CHECK(sent(2) == ncclInvalidArgument);
}

TEST_CASE("NCCL refuses operations while another card is current") {
  const Ranks ranks(2);
  Rank elsewhere = ranks[1];
  elsewhere.card = 0;
  CHECK(gather(elsewhere) == ncclInvalidArgument);
  CHECK_THAT(ncclGetLastError(nullptr), Contains("another card than the communicator's is current"));
}

TEST_CASE("NCCL refuses ranks that share a card or a number, foreign ids and blocking communicators") {
  const ncclUniqueId shared = new_id(), twice = new_id();
  ncclComm_t first = nullptr, second = nullptr;
  CHECK(connect(first, 0, 2, shared, 1) == ncclInProgress);
  CHECK(state_of(first) == ncclInProgress);
  CHECK(connect(second, 1, 2, shared, 1) == ncclInProgress);
  CHECK(state_of(first) == ncclInvalidUsage);
  CHECK(state_of(second) == ncclInvalidUsage);
  CHECK(connect(first, 0, 2, twice, 0) == ncclInProgress);
  CHECK(connect(second, 0, 2, twice, 1) == ncclInvalidUsage);
  CHECK(connect(second, 1, 3, twice, 1) == ncclInvalidUsage);
  CHECK(connect(second, 2, 2, twice, 1) == ncclInvalidArgument);
  CHECK(connect(second, 0, 1, ncclUniqueId{}, 0) == ncclInvalidArgument);
  ncclConfig_t blocking = NCCL_CONFIG_INITIALIZER;
  CHECK(ncclCommInitRankConfig(&second, 2, twice, 1, &blocking) == ncclInvalidArgument);
}

TEST_CASE("ncclCommAbort frees its rank while peers wait until they abort, and ncclCommFinalize waits for all ranks") {
  const Ranks ranks(2);
  gather_on_all(ranks);
  gather(ranks[0]);
  CHECK(state_of(ranks[0].comm) == ncclSuccess);
  const Event done;
  cudaEventRecord(done.handle, ranks[0].stream);
  ncclCommAbort(ranks[1].comm);
  CHECK(cudaStreamSynchronize(ranks[1].stream) == cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(cudaEventQuery(done.handle) == cudaErrorNotReady);
  ncclCommAbort(ranks[0].comm);
  CHECK(cudaEventSynchronize(done.handle) == cudaSuccess);

  const Ranks others(2);
  CHECK(ncclCommFinalize(others[0].comm) == ncclInProgress);
  CHECK(state_of(others[0].comm) == ncclInProgress);
  CHECK(ncclCommDestroy(others[0].comm) == ncclInvalidUsage);
  CHECK(ncclCommFinalize(others[1].comm) == ncclInProgress);
  for (const Rank& rank : others) {
    CHECK(state_of(rank.comm) == ncclSuccess);
    CHECK(ncclCommDestroy(rank.comm) == ncclSuccess);
  }
}
