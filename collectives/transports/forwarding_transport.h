// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport that forwards to another one, to be derived from by those that observe or disturb its calls. What has a
// default in Transport keeps it: a reduction is an exchange, which the derived class sees.
#include "weft/collectives/transport.h"

namespace weft {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  GlobalRank global(GroupRank rank) const override { return inner_->global(rank); }
  std::string description() const override { return inner_->description(); }
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    inner_->exchange(call, mine, longest, ranges, read);
  }
  std::unique_ptr<Request> start(const Call& call, Tensor mine, size_t longest, Ranges ranges) override {
    return inner_->start(call, std::move(mine), longest, ranges);
  }
  std::shared_ptr<Unfinished> unfinished() override { return inner_->unfinished(); }
  void send(Call call, GroupRank to, Bytes bytes) override { inner_->send(call, to, bytes); }
  Call receive(Call call, GroupRank from, std::span<std::byte> bytes) override {
    return inner_->receive(call, from, bytes);
  }
  std::unique_ptr<Transport> split(int color, int key, Site site) override { return inner_->split(color, key, site); }
  std::string busy_with(const std::string& what) override { return inner_->busy_with(what); }
  void finalize(Site site) override { inner_->finalize(site); }
  bool shows_device_memory() const override { return inner_->shows_device_memory(); }
  bool keeps_stream_order() const override { return inner_->keeps_stream_order(); }
  StorageHandle allocate_shown(size_t bytes) override { return inner_->allocate_shown(bytes); }

 protected:
  Transport& inner() { return *inner_; }
  const Transport& inner() const { return *inner_; }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace weft
