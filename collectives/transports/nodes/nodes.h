// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group of ranks on several nodes. The ranks of a node share memory, and one of them, the leader, exchanges bytes
// with the leaders of the other nodes. So a byte comes to a node once, however many of its ranks read it, and ranks of
// a node add their terms before a sum leaves the node.
//
// All ranks of a node lay out the same board, memory that they all write to: what leaves the node, and what has come to
// it. Every call begins with a step of the ranks of the node, so no rank writes to the board before all have read what
// the last call left there. A call in two halves has a board of its own, which the leader fills.
#include <memory>
#include <vector>

#include "weft/collectives/transport.h"
#include "weft/collectives/transports/nodes/node_steps.h"
#include "weft/collectives/unfinished.h"

namespace weft {

class Nodes : public Transport {
 public:
  // The state of a group. A transport is a view of it.
  struct State;
  // `flat` connects all ranks of the group by messages, and `local` those of this rank's node by memory, in the same
  // order. Messages between two ranks use `flat`. A process whose threads are ranks is a node, too, and then
  // `processes` says so in the description.
  static std::shared_ptr<State> join(std::unique_ptr<Transport> flat, std::unique_ptr<Transport> local, Site site,
                                     bool processes = false);
  explicit Nodes(std::shared_ptr<State> state) : state_(std::move(state)) {}

  int rank() const override;
  int size() const override;
  GlobalRank global(GroupRank rank) const override;
  std::string description() const override;
  std::string choices(bool of_leaders) const override;
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override;
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override;
  std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                           const Reduction& reduction) override;
  std::shared_ptr<Unfinished> unfinished() override;
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override;
  void send(Call call, GroupRank to, Bytes bytes) override;
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override;
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  std::string busy_with(const std::string& what) override;
  void finalize(Site site) override;
  bool shows_device_memory() const override { return false; }
  bool keeps_stream_order() const override { return false; }
  StorageHandle allocate_shown(size_t bytes) override;

 private:
  struct Beginning;
  class Started;

  std::byte* board(size_t bytes);  // at least so many, at this rank's address of them
  void step(const Call& call);     // waits for the ranks of this node
  // On the leader, what it does with those of other nodes.
  void lead(const Call& call, const NodeSteps& steps, std::byte* board);

  std::shared_ptr<State> state_;
};

struct Nodes::State {
  NodeMap map;
  std::unique_ptr<Transport> flat, local;
  std::unique_ptr<Transport> network;  // between the leaders; null on other ranks, and if there is one node only
  StorageHandle board;                 // on the leader, who has allocated it
  std::byte* board_at = nullptr;
  size_t board_bytes = 0;
  bool processes = false;

  // Groups for calls in two halves (nodes_started.cpp). Every leader makes each group's calls in the order in which the
  // ranks have started them, but it may be at another step of the next call than other leaders.
  struct Later {
    std::unique_ptr<Transport> tables, terms, results;  // of this node: what its ranks expose, and the boards
    std::unique_ptr<Transport> first, second;           // between the leaders
    std::vector<Started*> begun;                        // by this rank as a leader, and not shown yet
    bool stepping = false;                              // a step is being taken
    std::shared_ptr<Unfinished> unfinished;
  } later;
};

}  // namespace weft
