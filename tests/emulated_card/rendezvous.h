// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks do together with NCCL: all of them in a collective, two with a message. It takes place when the streams of
// all have come to it, and only then are data read.
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace weft::emulated {

enum class Verb { all_gather, broadcast, all_reduce, message };

// What one rank asks for.
struct Operation {
  Verb verb;
  const std::byte* from;  // null for who only receives
  std::byte* to;          // null for who only sends
  size_t count;           // of elements that one rank gives
  ncclDataType_t type;
  int variant = 0;  // the root, or the reduction

  size_t bytes() const;
  bool matches(const Operation& other) const;  // what another rank of the rendezvous asks for
};

struct Rendezvous {
  struct Part {
    ncclComm_t comm = nullptr;  // null until it has asked
    Operation operation{};
    Stream* stream = nullptr;  // null until it is on the stream
    uint64_t position = 0;
    bool here = false;
  };
  std::vector<Part> parts;  // in rank order; of a message, the sender's and the receiver's
  bool over = false;

  bool asked_by_all() const;
  void hold();  // reductions are in rank order
};
using Rendezvouses = std::vector<std::shared_ptr<Rendezvous>>;

}  // namespace weft::emulated
