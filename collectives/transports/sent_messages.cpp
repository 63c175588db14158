// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/sent_messages.h"

#include "weft/collectives/transports/message_steps.h"

namespace weft {
namespace {

// As MpiGroup makes them, but in one part.
MessageSteps steps_of(const MessageSchedule& schedule, int rank, FunctionRef<size_t(int, int)> reads) {
  const int n = static_cast<int>(schedule.ranks);
  const auto bytes = static_cast<size_t>(schedule.bytes);
  const StepTaker taker{rank, n, size_t{1} << 40};
  const bool to_all = schedule.movement == Movement::sum;
  const Fold fold{{}, ReduceOp::sum, DType::f32, Device::cpu, true};
  std::vector<ByteRange> of_peers, by_peers;
  std::vector<size_t> sizes;
  for (int r = 0; r < n; ++r) {
    of_peers.push_back({0, reads(rank, r)});
    by_peers.push_back({0, reads(r, rank)});
    sizes.push_back(of_peers.back().last);
  }
  switch (schedule.way) {
    case Way::with_the_call: return {};
    case Way::by_mpi: return exposing_steps(taker, sizes, true);
    case Way::directly: return direct_steps(taker, {of_peers, by_peers});
    case Way::in_slices:
      if (schedule.movement == Movement::copies) return broadcast_steps(taker, {of_peers, by_peers});
      return sum_steps(taker, bytes,
                       to_all ? Readers(n) : Readers(n, [&](int to, int from) { return reads(to, from) > 0; }), fold,
                       to_all);
    case Way::in_halves: {
      std::vector<ByteRange> slices;
      for (size_t r = 0; r < sizes.size(); ++r)
        slices.push_back(to_all ? ByteRange{0, bytes}.slice(r, sizes.size())
                                : ByteRange{r * sizes[0], (r + 1) * sizes[0]});
      return halving_steps(taker, slices, fold, to_all);
    }
  }
  return {};
}

}  // namespace

std::vector<SentStep> messages_of(const MessageSchedule& schedule, FunctionRef<size_t(int, int)> reads) {
  std::vector<SentStep> all;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto steps = steps_of(schedule, rank, reads).steps;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (i == all.size()) all.push_back({steps[i].what, {}});
      for (const auto& [peer, piece] : steps[i].sends)
        if (peer != rank) all[i].messages.push_back({rank, peer, piece.bytes.size()});
    }
  }
  std::erase_if(all, [](const SentStep& step) { return step.messages.empty(); });
  return all;
}

}  // namespace weft
