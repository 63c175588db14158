// SPDX-License-Identifier: Apache-2.0
#pragma once
// An NCCL operation of several ranks: all of them in a collective, two in a message. It runs when all their streams
// have reached it, and reads data only then.
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/emulated_card/stream.h"

namespace weft::emulated {

enum class Verb { all_gather, broadcast, all_reduce, reduce_scatter, message };
constexpr size_t verbs = 5;

// One rank's request.
struct Operation {
  Verb verb;
  const std::byte* from;  // null for a receiver
  std::byte* to;          // null for a sender
  size_t count;           // number of elements of one rank, before a gathering or after a scattering
  ncclDataType_t type;
  int variant = 0;  // the root, or the reduction

  size_t bytes() const;             // of one rank's elements
  size_t sent(size_t ranks) const;  // by a rank, in bytes
  size_t received(size_t ranks) const;
  bool matches(const Operation& other) const;  // whether another rank's request fits
};

struct Rendezvous {
  struct Part {
    ncclComm_t comm = nullptr;  // null until the rank has requested it
    Operation operation{};
    Stream* stream = nullptr;  // null until it is enqueued
    When when{};
    Place place{};
    bool here = false;
  };
  std::vector<Part> parts;  // in rank order; for a message, sender and receiver
  bool over = false;

  bool asked_by_all() const;
  void hold();  // reduces in rank order
};
using Rendezvouses = std::vector<std::shared_ptr<Rendezvous>>;

}  // namespace weft::emulated
