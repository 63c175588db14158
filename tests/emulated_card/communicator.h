// SPDX-License-Identifier: Apache-2.0
#pragma once
// NCCL's communicators, of ranks that are threads of this process and have a card each. They do not block: what one is
// asked for is done when it has said that it is at rest, and until then it can be asked for nothing else. It is in
// progress for longer than it must be.
#include <nccl.h>

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "tests/emulated_card/rendezvous.h"

namespace weft::emulated {

// The ranks that one unique id brings together. Like the communicators never destroyed, so that misuse can be told.
struct World {
  std::mutex mutex;  // guards all below, and the communicators
  std::condition_variable changed;
  std::vector<std::unique_ptr<ncclComm>> ranks;                              // null until they come
  std::map<std::array<int64_t, 3>, std::shared_ptr<Rendezvous>> incomplete;  // by sender, receiver and number
};

// The operation of one rank, and between whom it is: -1 for all.
struct Request {
  Stream* stream;
  Operation operation;
  int sender = -1, receiver = -1;
};

ncclResult_t refuse(ncclResult_t error, std::string why);  // the error
const char* last_refusal();

}  // namespace weft::emulated

// All of it under the world's mutex.
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
  ncclResult_t error() const { return error_; }  // stays
  ncclResult_t fail(ncclResult_t error, std::string why);
  void fail_all(ncclResult_t error, std::string why);  // on every rank of the world

  void ask(const weft::emulated::Request& request);
  void finalize() { begin(State::finalizing); }
  void close();       // what it has on streams ends there without doing anything
  bool is_at_rest();  // goes on, if it can

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
  int excuses_ = 2;  // so many times more it is in progress, whatever has been done
  bool connected_ = false;
  std::map<std::pair<int, int>, int64_t> asked_;  // by sender and receiver: how many pending
  std::map<Stream*, Rendezvouses> pending_;       // asked for, and not yet on the stream
  std::map<Stream*, uint64_t> launched_;          // the last position on each
};
