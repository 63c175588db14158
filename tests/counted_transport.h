#pragma once
// A transport that counts the meetings of its group, to test how many a piece of program costs.
#include "tests/forwarding_transport.h"

namespace weft {

class CountedTransport final : public ForwardingTransport {
 public:
  CountedTransport(std::unique_ptr<Transport> inner, int& meetings)
      : ForwardingTransport(std::move(inner)), meetings_(meetings) {}
  void meet(const Call& call, Bytes mine, size_t longest, Read read) override {
    ++meetings_;
    ForwardingTransport::meet(call, mine, longest, read);
  }

 private:
  int& meetings_;
};

}  // namespace weft
