// SPDX-License-Identifier: Apache-2.0
// How ranks compare their calls by messages.
#include <algorithm>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

MpiGroup::Agreement::Agreement(MpiGroup& group, const Call& call, bool started, Bytes mine, size_t longest)
    : group_(group),
      call_(call),
      started_(started),
      mine_{call.fingerprint(), 2 * call.sequence + started, longest, mine.size(), {}},
      all_(std::make_unique<Announcement[]>(static_cast<size_t>(group.size()))) {
  std::copy_n(mine.begin(), std::min(mine.size(), small_call), mine_.bytes.begin());
  group.state_->wire.gather(reinterpret_cast<const std::byte*>(&mine_), reinterpret_cast<std::byte*>(all_.get()),
                            sizeof mine_, agreement_tag, requests_);
}

bool MpiGroup::Agreement::arrived() {
  int done = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

std::vector<size_t> MpiGroup::Agreement::sizes() {
  group_.finish(requests_);
  const std::span<const Announcement> all(all_.get(), static_cast<size_t>(group_.size()));
  if (!std::all_of(all.begin(), all.end(), [&](const auto& theirs) { return theirs.agrees_with(mine_); })) report();
  std::vector<size_t> sizes;
  for (const Announcement& theirs : all) sizes.push_back(theirs.size);
  return sizes;
}

// If one rank has seen a difference, every rank does, and sends its whole call to all others. These are messages
// between two ranks, because the next collective of a rank that has started its call may be any other.
void MpiGroup::Agreement::report() {
  const State& state = *group_.state_;
  const auto n = static_cast<size_t>(group_.size());
  struct Told {
    Call call;
    bool started;
  };
  std::vector<Told> told(n);
  Wire::Requests requests;
  const Told mine{call_, started_};
  for (int r = 0; r < group_.size(); ++r) {
    state.wire.send(reinterpret_cast<const std::byte*>(&mine), sizeof mine, r, report_tag, requests);
    state.wire.receive(reinterpret_cast<std::byte*>(&told[static_cast<size_t>(r)]), sizeof mine, r, report_tag,
                       requests);
  }
  group_.finish(requests);
  std::string calls;
  for (int r = 0; r < group_.size(); ++r) {
    const auto& [call, started] = told[static_cast<size_t>(r)];
    calls += "\n  rank " + text(group_.global({r})) + (started ? " has started call " : " is in call ") +
             text(call.sequence) + " of group " + text(state.number) + " (" + text(group_.size()) +
             " ranks): " + call.text();
  }
  state.job->fail(
      state.rank_on_node,
      Fault(exit_codes::mismatch, "collective mismatch: the ranks of a group are in different calls" + calls));
}

}  // namespace weft
