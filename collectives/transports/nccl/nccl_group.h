// SPDX-License-Identifier: Apache-2.0
#pragma once
// A group whose ranks have a card each. A CardExchange moves the memory of cards; a host transport does everything
// else, and compares the ranks' calls before anything is enqueued.
//
// Peers' bytes are copies on this rank's own card, written in the order of this rank's stream. So no rank synchronizes
// a backend, neither before it exposes memory nor before `read` returns, and work that is enqueued after a call finds
// its `result` complete.
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "weft/collectives/transport.h"
#include "weft/collectives/transports/nccl/card_exchange.h"
#include "weft/collectives/transports/nccl/card_fault.h"
#include "weft/collectives/transports/nccl/launch_order.h"
#include "weft/collectives/transports/nccl/nccl.h"

namespace weft {

class NcclGroup : public Transport {
 public:
  // Makes this rank's end of the exchange of a group, when it is first needed. It makes no calls.
  using Connect = std::function<std::unique_ptr<CardExchange>(Transport& host)>;

  // Where the exchanged memory is, and how much memory may hold bytes received from peers. Collectives in two halves
  // ignore the limit, because they read all bytes as one part. Tests set other values.
  struct Where {
    Device device = Device::cuda;
    size_t workspace_bytes = size_t{64} << 20;
    SetUp set_up = SetUp::with_first_use;
    std::shared_ptr<CardFault> fault = std::make_shared<CardFault>();
  };
  // All ranks make it together. `library` is for the description. The groups of a rank share one order.
  NcclGroup(std::unique_ptr<Transport> host, Connect connect, std::string library, Where where,
            std::shared_ptr<LaunchOrder> order = nullptr);
  ~NcclGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  GlobalRank global(GroupRank rank) const override { return host_->global(rank); }
  std::string choices(bool of_leaders) const override { return host_->choices(of_leaders); }
  std::string description() const override { return library_ + " over " + host_->description(); }
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override;
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override;
  std::unique_ptr<Request> start_reduction(const Call& call, Tensor mine, Tensor result,
                                           const Reduction& reduction) override;
  std::shared_ptr<Unfinished> unfinished() override { return host_->unfinished(); }
  void reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) override;
  bool reduces_in_any_order(const Call& call, size_t bytes) const override;
  void send(Call call, GroupRank to, Bytes bytes) override { host_->send(call, to, bytes); }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    return host_->receive(call, from, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  std::string busy_with(const std::string& what) override { return host_->busy_with(what); }
  void finalize(Site site) override;
  bool shows_device_memory() const override { return true; }
  bool keeps_stream_order() const override { return true; }
  StorageHandle allocate_shown(size_t bytes) override { return host_->allocate_shown(bytes); }
  StorageHandle allocate_common(size_t bytes, Site site) override { return host_->allocate_common(bytes, site); }

 private:
  class StartedCall;
  using Number = LaunchOrder::Number;
  using Turn = std::unique_ptr<const LaunchOrder::Place>;

  // What ranks tell each other before anything goes to their cards.
  struct Announcement {
    uint64_t size, longest, number, with_address;
    CardExchange::Address address;  // of rank 0, told in the group's first call
    Bytes bytes() const {
      return {reinterpret_cast<const std::byte*>(this), with_address ? sizeof *this : offsetof(Announcement, address)};
    }
  };

  bool on_card(const Call& call) const { return call.device == where_.device; }
  // Agrees on a call that waits for all ranks, and fills sizes_ with the number of bytes of each. The card gets this
  // call during its turn.
  Turn agree(const Call& call, size_t mine, size_t longest);
  Announcement announce(size_t mine, size_t longest, Number number = 0);
  // Fills `sizes` and returns the largest number; a Fault if the ranks do not agree.
  Number read_announced(const Call& call, const Part& part, size_t longest, std::vector<size_t>& sizes);
  static Number largest_of(const Part& numbers);
  void set_up();
  void connect(const Call& call);  // with the first turn
  Tensor workspace(size_t bytes) const;
  // Gathers a part of the bytes of all ranks, and sets peers_ to where they are once the ticket is done.
  CardExchange::Ticket gather(const Call& call, CardExchange::Mark after, const std::byte* mine,
                              std::span<const size_t> sizes, Range part, std::byte* to);
  // Swaps the bytes from `skipped` to skipped + part of every range, or gathers them if every rank gets equal blocks of
  // all ranks. Sets peers_ and begins_.
  CardExchange::Ticket swap(const Call& call, CardExchange::Mark after, const std::byte* mine, const Ranges& ranges,
                            size_t skipped, size_t part, std::byte* to);
  void set_peers(std::byte* packed);  // for bytes in rank order, counts_ of each rank
  void await(CardExchange::Ticket ticket);
  void go_on_with_started();  // as far as it need not wait
  void take_step(StartedCall& call);

  const std::unique_ptr<Transport> host_;
  const std::unique_ptr<Transport> numbers_;  // the same ranks, to agree on the numbers of started calls
  const Connect connect_;
  const std::string library_;
  const Where where_;
  const std::shared_ptr<LaunchOrder> order_;
  std::deque<std::shared_ptr<StartedCall>> started_;  // and not enqueued yet
  std::unique_ptr<CardExchange> exchange_;            // from the first call on
  std::optional<CardExchange::Address> address_;      // to connect to
  std::vector<size_t> sizes_, counts_, begins_;
  std::vector<Range> slices_;
  std::vector<const std::byte*> peers_;
};

}  // namespace weft
