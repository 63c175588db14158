// SPDX-License-Identifier: Apache-2.0
#pragma once
// Threads that stand for ranks on several nodes: those of one node share memory, and messages connect all of them.
#include <vector>

#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"
#include "weft/collectives/transports/nodes/nodes.h"
#include "weft/collectives/transports/shared/shared_memory.h"

namespace weft {

// Counts the bytes that this rank receives in exchanges of a group and of the groups that it is split into.
class CountedMessages final : public ForwardingTransport {
 public:
  CountedMessages(std::unique_ptr<Transport> inner, size_t& bytes, size_t& messages)
      : ForwardingTransport(std::move(inner)), bytes_(bytes), messages_(messages) {}
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    count(longest, ranges);
    ForwardingTransport::exchange(call, mine, longest, ranges, read);
  }
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    count(longest, ranges);
    return ForwardingTransport::start(call, std::move(mine), longest, ranges);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override {
    auto group = ForwardingTransport::split(color, key, site);
    return group ? std::make_unique<CountedMessages>(std::move(group), bytes_, messages_) : nullptr;
  }

 private:
  void count(size_t longest, const Ranges& ranges) {
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r)
      if (static_cast<int>(r) != rank()) bytes_ += ranges.all() ? longest : ranges.of_peers[r].size(), ++messages_;
  }

  size_t &bytes_, &messages_;
};

// What the leader of this rank's node has received.
struct Received {
  size_t bytes = 0, messages = 0;
};

// Calls the body on ranks of which the r-th is on node node_of[r].
inline void on_nodes(const std::vector<int>& node_of,
                     const std::function<void(std::unique_ptr<Transport>, Received&)>& body) {
  run_ranks(static_cast<int>(node_of.size()), [&](std::unique_ptr<Transport> world) {
    const int me = world->rank();
    Received received;
    auto flat = std::make_unique<CountedMessages>(world->split(0, 0, Site::here()), received.bytes, received.messages);
    auto local = world->split(node_of[static_cast<size_t>(me)], 0, Site::here());
    body(std::make_unique<Nodes>(Nodes::join(std::move(flat), std::move(local), Site::here())), received);
  });
}

}  // namespace weft
