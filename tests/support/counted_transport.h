// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport that counts the collectives of its group, to test the costs of a program.
#include "weft/collectives/transports/forwarding_transport.h"

namespace weft {

class CountedTransport final : public ForwardingTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, int& collectives)
      : ForwardingTransport(std::move(inner)), count_(collectives) {}
  void exchange(const Call& call, Bytes mine, size_t longest, Ranges ranges, Read read) override {
    ++count_;
    ForwardingTransport::exchange(call, mine, longest, ranges, read);
  }

 private:
  int& count_;
};

}  // namespace weft
