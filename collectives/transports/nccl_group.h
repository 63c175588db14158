#pragma once
// A group whose ranks have a card each: the cards' memory goes from card to card, by a CardExchange, and everything
// else by the transport that it is put on. There, the ranks also agree on every call before anything is enqueued.
//
// Peers' bytes are copies on this rank's own card, in the order of this rank's stream. So nobody has to synchronize a
// backend: neither before showing memory, nor before `read` or `fold` returns; and what a call leaves in `result` is
// there for all that is enqueued later.
#include <functional>
#include <memory>
#include <vector>

#include "collectives/transport.h"
#include "collectives/transports/card_exchange.h"

namespace weft {

class NcclGroup : public Transport {
 public:
  // Makes the exchange of a group, together on all ranks, when it is first needed.
  using Connect = std::function<std::unique_ptr<CardExchange>(Transport& host)>;

  // What tests replace: where the exchanged memory is, and how much of it, at most, may hold what peers have sent,
  // unless all of it is asked for at once.
  struct Where {
    Device device = Device::cuda;
    size_t room = size_t{64} << 20;
  };
  // `library` is for the description.
  NcclGroup(std::unique_ptr<Transport> host, Connect connect, std::string library, Where where);

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  GlobalRank global(GroupRank rank) const override { return host_->global(rank); }
  std::string description() const override { return library_ + " over " + host_->description(); }
  void meet(const Call& call, Bytes mine, size_t longest, Read read) override;
  std::unique_ptr<Started> start(const Call& call, Tensor mine, size_t longest) override;
  void combine(const Call& call, Bytes mine, std::span<std::byte> result, Fold fold) override;
  bool combine_in_any_order(const Call& call, Bytes mine, std::span<std::byte> result) override;
  void send(Call call, GroupRank to, Bytes bytes) override { host_->send(call, to, bytes); }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    return host_->receive(call, from, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override;
  std::string busy_with(const std::string& what) override { return host_->busy_with(what); }
  void finalize(Site site) override { host_->finalize(site); }
  bool shows_device_memory() const override { return true; }
  bool keeps_stream_order() const override { return true; }
  StorageHandle allocate_shown(size_t bytes) override { return host_->allocate_shown(bytes); }
  StorageHandle allocate_common(size_t bytes, Site site) override { return host_->allocate_common(bytes, site); }

 private:
  class Gathering;

  bool on_card(const Call& call) const { return call.device == where_.device; }
  void agree(const Call& call, size_t mine, size_t longest);  // fills sizes_ with what each rank shows
  CardExchange& exchange();
  Tensor room(size_t bytes) const;
  // Bytes [first, last) of every rank, on every rank; peers_ are where they will be when the ticket is done.
  CardExchange::Ticket gather(const Call& call, const std::byte* mine, size_t first, size_t last, std::byte* to);
  void point_at(std::byte* packed);  // peers_, to counts_ bytes each

  const std::unique_ptr<Transport> host_;
  const Connect connect_;
  const std::string library_;
  const Where where_;
  std::unique_ptr<CardExchange> exchange_;
  std::vector<size_t> sizes_, counts_, cuts_;
  std::vector<const std::byte*> peers_;
};

}  // namespace weft
