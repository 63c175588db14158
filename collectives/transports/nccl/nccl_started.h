// SPDX-License-Identifier: Apache-2.0
#pragma once
// A collective in two halves on cards, see nccl_started.cpp.
#include "weft/collectives/transports/nccl/nccl_group.h"

namespace weft {

class NcclGroup::StartedCall final : public Transport::Request, public std::enable_shared_from_this<StartedCall> {
 public:
  StartedCall(NcclGroup& group, const Call& call, Tensor mine, size_t longest, const Ranges& ranges);
  StartedCall(const StartedCall&) = delete;
  ~StartedCall() override;
  bool ready() override;
  void finish(Read read) override;

  // Between its halves a call takes three steps: all ranks agree, this rank asks for it, and it is enqueued.
  bool must_wait() const;  // in the next step
  bool take_step();        // returns whether it was the last

 private:
  void enqueue();

  NcclGroup& group_;
  const Call call_;
  const Tensor mine_;
  Tensor all_;
  const size_t longest_;
  const std::vector<Range> of_peers_, by_peers_;  // empty: all bytes
  std::vector<size_t> sizes_;
  CardExchange::Mark after_ = nullptr;
  std::unique_ptr<Request> agreement_;  // until all ranks have agreed
  CardExchange::Ticket ticket_ = 0;     // 0 until this rank has asked for it
  bool enqueued_ = false;
  std::vector<const std::byte*> peers_;
  std::vector<size_t> begins_;
};

}  // namespace weft
