// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated_card/communicator.h"

#include <algorithm>
#include <atomic>
#include <utility>

using namespace weft::emulated;

namespace weft::emulated {
namespace {

struct Refusals {
  std::mutex mutex;
  std::deque<std::string> texts;  // callers keep pointers to these
};
Refusals& refusals() {
  static Refusals& instance = *new Refusals;
  return instance;
}

std::array<std::atomic<int64_t>, verbs> asked;

}  // namespace

void count(Verb verb) { ++asked[static_cast<size_t>(verb)]; }
int64_t asked_so_far(Verb verb) { return asked[static_cast<size_t>(verb)]; }

ncclResult_t refuse(ncclResult_t error, std::string why) {
  const std::lock_guard lock(refusals().mutex);
  refusals().texts.push_back(std::move(why));
  return error;
}
const char* last_refusal() {
  const std::lock_guard lock(refusals().mutex);
  return refusals().texts.empty() ? "" : refusals().texts.back().c_str();
}

}  // namespace weft::emulated

ncclResult_t ncclComm::fail(ncclResult_t error, std::string why) {
  error_ = refuse(error, std::move(why));
  world.changed.notify_all();
  return error;
}

void ncclComm::fail_all(ncclResult_t error, std::string why) {
  for (const auto& comm : world.ranks)
    if (comm && comm->error_ == ncclSuccess) comm->fail(error, why);
}

void ncclComm::close() {
  state_ = State::closed;
  world.changed.notify_all();
}

void ncclComm::ask(const Request& request) {
  const bool message = request.sender >= 0;
  const std::array<int64_t, 3> key{request.sender, request.receiver, asked_[{request.sender, request.receiver}]++};
  std::shared_ptr<Rendezvous> rendezvous = world.incomplete[key];
  if (!rendezvous) {
    rendezvous = world.incomplete[key] = std::make_shared<Rendezvous>();
    rendezvous->parts.resize(message ? 2 : world.ranks.size());
  }
  for (const Rendezvous::Part& other : rendezvous->parts)
    if (other.comm && !other.operation.matches(request.operation))
      return fail_all(ncclInvalidUsage, "ranks " + std::to_string(other.comm->rank) + " and " + std::to_string(rank) +
                                            " ask for operations that do not match");
  const bool second = message && rank == request.receiver;
  rendezvous->parts[message ? second : static_cast<size_t>(rank)] = {this, request.operation};
  if (rendezvous->asked_by_all()) world.incomplete.erase(key);
  pending_[request.stream].push_back(std::move(rendezvous));
  begin(State::busy);
}

bool ncclComm::is_at_rest() {
  if (state_ == State::at_rest) return true;
  if (excuses_ > 0) return --excuses_, false;
  switch (state_) {
    case State::joining:
      if (!has_joined()) return false;
      break;
    case State::busy:
      if (!has_connected()) return false;
      launch();
      break;
    case State::finalizing: return has_finalized();
    default: return true;
  }
  state_ = State::at_rest;
  return true;
}

bool ncclComm::has_joined() const {
  return std::all_of(world.ranks.begin(), world.ranks.end(), [](const auto& comm) { return comm != nullptr; });
}

// The first group waits for the peers to request theirs. Later ones are enqueued without waiting.
bool ncclComm::has_connected() const {
  return connected_ || std::all_of(pending_.begin(), pending_.end(), [](const auto& piece) {
           return std::all_of(piece.second.begin(), piece.second.end(), [](auto& m) { return m->asked_by_all(); });
         });
}

bool ncclComm::has_finalized() const {
  bool well = true;
  for (const auto& [stream, position] : launched_) well = stream->is_done(position) && well;
  for (const auto& comm : world.ranks) well = well && comm->state_ >= State::finalizing;
  return well;
}

void ncclComm::launch() {
  connected_ = true;
  for (const auto& piece : std::exchange(pending_, {})) {
    const auto& [stream, pending] = piece;
    if (!launch_in_order(card, pending))
      return fail_all(
          ncclInvalidUsage,
          "card " + std::to_string(card) + " launches operations of its communicators in another order than its peers");
    const uint64_t position = launched_[stream] = stream->enqueue([this, m = pending] { take_part(m); }, no_card);
    for (const auto& rendezvous : pending)
      for (Rendezvous::Part& part : rendezvous->parts) {
        if (part.comm == this) part.stream = stream, part.when = {now()}, part.place = stream->last();
        if (part.here) stream->is_done(position);  // a peer waits already
      }
  }
}

// Called by the stream. All pending operations of a group are open at the same time.
void ncclComm::take_part(const Rendezvouses& pending) {
  std::unique_lock lock(world.mutex);
  if (over()) return;
  for (const auto& rendezvous : pending) come_to(*rendezvous);
  world.changed.wait(lock, [&] {
    return over() ||
           std::all_of(pending.begin(), pending.end(), [](const auto& rendezvous) { return rendezvous->over; });
  });
}

void ncclComm::come_to(Rendezvous& rendezvous) {
  bool complete = true;
  for (Rendezvous::Part& part : rendezvous.parts) {
    if (part.comm == this) part.here = true;
    const bool well = part.comm && !part.comm->over();
    if (well && part.stream && !part.here) part.stream->is_done(part.place.position);  // a real card needs no push
    complete = complete && well && part.here;
  }
  if (!complete) return;
  const Access access(every_card);
  rendezvous.hold();
  world.changed.notify_all();
}
