// SPDX-License-Identifier: Apache-2.0
#pragma once
// NCCL's communicators, for ranks that are threads of this process with a card each. They do not block: a request is
// done when the communicator is no longer in progress, and until then it accepts no other. It stays in progress longer
// than necessary.
#include <nccl.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tests/emulated_card/rendezvous.h"

namespace weft::emulated {

// The ranks that share a unique id. Never destroyed, like its communicators, so that misuse can be reported.
struct World {
  std::mutex mutex;  // guards everything below, and the communicators
  std::condition_variable changed;
  std::vector<std::unique_ptr<ncclComm>> ranks;                              // null until they join
  std::map<std::array<int64_t, 3>, std::shared_ptr<Rendezvous>> incomplete;  // by sender, receiver and number
};

// The operation of one rank, with sender and receiver, or -1 if it is collective.
struct Request {
  Stream* stream;
  Operation operation;
  int sender = -1, receiver = -1;
};

// How many operations of a kind all ranks have asked for so far. A message is two: a send and a receive.
void count(Verb verb);
int64_t asked_so_far(Verb verb);

// Card by card, what was launched. Cards that share operations must launch them in one order: returns whether these, at
// once, come after the last ones in every chain of launches.
bool launch_in_order(int card, const Rendezvouses& operations);

ncclResult_t refuse(ncclResult_t error, std::string why);  // returns the error
const char* last_refusal();

}  // namespace weft::emulated

// Everything is guarded by the world's mutex.
struct ncclComm {
  using World = weft::emulated::World;
  using Stream = weft::emulated::Stream;
  using Rendezvous = weft::emulated::Rendezvous;
  using Rendezvouses = weft::emulated::Rendezvouses;
  enum class State { joining, busy, at_rest, finalizing, closed };

  ncclComm(World& world, int rank, int card) : world(world), rank(rank), card(card) {}

  World& world;
  const int rank, card;

  State state() const { return state_; }
  ncclResult_t error() const { return error_; }  // permanent
  ncclResult_t fail(ncclResult_t error, std::string why);
  void fail_all(ncclResult_t error, std::string why);  // on every rank of the world

  void ask(const weft::emulated::Request& request);
  void finalize() { begin(State::finalizing); }
  void close();       // its work on streams ends without effect
  bool is_at_rest();  // makes progress if possible

 private:
  bool over() const { return state_ == State::closed || error_ != ncclSuccess; }
  void begin(State state) { state_ = state, excuses_ = 2; }
  bool has_joined() const;
  bool has_connected() const;
  bool has_finalized() const;
  void launch();
  void take_part(const Rendezvouses& pending);
  void come_to(Rendezvous& rendezvous);

  State state_ = State::joining;
  ncclResult_t error_ = ncclSuccess;
  int excuses_ = 2;  // how many more times it reports progress, whatever is done
  bool connected_ = false;
  std::map<std::pair<int, int>, int64_t> asked_;  // pending operations by sender and receiver
  std::map<Stream*, Rendezvouses> pending_;       // requested but not yet enqueued
  std::map<Stream*, uint64_t> launched_;          // the last position on each stream
};
