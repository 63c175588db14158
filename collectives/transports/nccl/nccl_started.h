// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective in two halves on cards, see nccl_started.cpp.
#include "weft/collectives/transports/nccl/nccl_group.h"

namespace weft {

class NcclGroup::StartedCall final : public Transport::Request,
                                     public LaunchOrder::Started,
                                     public std::enable_shared_from_this<StartedCall> {
 public:
  StartedCall(NcclGroup& group, const Call& call, Tensor mine, size_t longest, const Ranges& ranges);
  StartedCall(const StartedCall&) = delete;
  ~StartedCall() override;
  bool ready() override;
  void finish(Read read) override;

  // Between its halves a call takes these steps: all ranks have started it, they agree on its number, and in its turn
  // the group connects, this rank asks for it, and it is enqueued.
  bool has_proposed() const { return place_.has_value(); }
  bool is_enqueued() const { return enqueued_; }
  bool is_taking_step() const { return taking_step_; }  // or has failed in one
  bool must_wait() const;                               // before it is done with this or the next step
  void take_step();
  void take_next_step() override { group_.take_step(*this); }

 private:
  void propose();
  void agree();
  void enqueue();
  void leave();

  NcclGroup& group_;
  const Call call_;
  const Tensor mine_;
  Tensor all_;
  const size_t longest_;
  const std::vector<Range> of_peers_, by_peers_;  // empty: all bytes
  std::vector<size_t> sizes_;
  CardExchange::Mark after_ = nullptr;
  std::unique_ptr<Request> agreement_;  // on the call, then on its number
  std::optional<LaunchOrder::Place> place_;
  CardExchange::Ticket ticket_ = 0;  // 0 until this rank has asked for it
  bool taking_step_ = false, enqueued_ = false;
  std::vector<const std::byte*> peers_;
  std::vector<size_t> begins_;
};

}  // namespace weft
