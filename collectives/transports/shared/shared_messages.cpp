// SPDX-License-Identifier: Apache-2.0
// Messages, split and finalize in shared memory.
#include <algorithm>
#include <tuple>

#include "weft/collectives/transports/shared/group_state.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

constexpr size_t header_bytes = 256;  // of a message, before its bytes

}  // namespace

void SharedMemory::send(Call call, GroupRank to, Bytes bytes) {
  static_assert(sizeof(Message) <= header_bytes);
  require(to.value >= 0 && to.value < size_, "send: to rank ", to, " of a group of ", size_);
  Channel& channel = this->channel(rank_, to.value);
  call.root = to.value;
  call.sequence = ++channel.sent;
  job_->begin(members_[rank_], call, state_->group, size_);
  auto& in_flight = in_flight_[static_cast<size_t>(to.value)];
  const auto first_unread = std::find_if(in_flight.begin(), in_flight.end(), [&](Offset o) {
    return !job_->at<Message>(o)->consumed.load(std::memory_order_acquire);
  });
  for (auto i = in_flight.begin(); i != first_unread; ++i) arena_->give(*i, header_bytes + job_->at<Message>(*i)->size);
  in_flight.erase(in_flight.begin(), first_unread);

  const Offset place = arena_->take(header_bytes + bytes.size());
  // The fields are assigned, not constructed: a rank that searches for a wait cycle may still read the `next` of an
  // earlier message in this memory, which another rank once waited for. It discards what it reads then.
  Message& message = *job_->at<Message>(place);
  message.next.store(0, std::memory_order_relaxed);
  message.consumed.store(false, std::memory_order_relaxed);
  message.size = bytes.size();
  message.call = call;
  std::copy(bytes.begin(), bytes.end(), job_->at<std::byte>(place) + header_bytes);
  job_->at<Message>(channel.last_sent)->next.store(place, std::memory_order_seq_cst);
  channel.last_sent = place;
  in_flight.push_back(place);
  if (state_->event.has_sleepers()) state_->event.wake_all();
  job_->end(members_[rank_]);
}

Call SharedMemory::receive(Call call, GroupRank from, std::span<std::byte> bytes) {
  require(from.value >= 0 && from.value < size_, "receive: from rank ", from, " of a group of ", size_);
  Channel& channel = this->channel(from.value, rank_);
  call.root = from.value;
  call.sequence = ++channel.received;
  job_->begin(members_[rank_], call, state_->group, size_);
  Message& last = *job_->at<Message>(channel.last_received);
  await(last.next, 1, from.value, [] {});
  const Offset place = last.next.load(std::memory_order_acquire);
  const Message& message = *job_->at<Message>(place);
  if (!message.call.same_message(call) || message.size != bytes.size())
    job_->fail(members_[rank_], wrong_message(message.call, global(from), call, {members_[rank_]}));
  std::copy_n(job_->at<std::byte>(place) + header_bytes, bytes.size(), bytes.begin());
  channel.last_received = place;
  last.consumed.store(true, std::memory_order_release);
  job_->end(members_[rank_]);
  return message.call;
}

std::unique_ptr<Transport> SharedMemory::split(int color, int key, Site site) {
  struct Choice {
    int32_t color, key;
  };
  const Choice mine{color, key};
  std::vector<std::tuple<int, int>> chosen;  // key, and rank in this group, of the ranks with the same color
  expose(describe(Verb::split, site), std::as_bytes(std::span(&mine, 1)), sizeof mine, [&](const Part& part) {
    for (int r = 0; r < size_; ++r) {
      Choice theirs;
      std::memcpy(&theirs, part.peers[static_cast<size_t>(r)], sizeof theirs);
      if (theirs.color == color) chosen.push_back({theirs.key, r});
    }
  });
  std::sort(chosen.begin(), chosen.end());
  std::vector<int> members;
  for (const auto& [k, r] : chosen) members.push_back(members_[r]);
  const int leader = std::get<1>(chosen.front());

  Offset place = color >= 0 && leader == rank_
                     ? new_group_state(*job_, members, address_space_, static_cast<int>(members.size()))
                     : 0;
  const Offset made = place;
  expose(describe(Verb::split, site), std::as_bytes(std::span(&made, 1)), sizeof made,
         [&](const Part& part) { std::memcpy(&place, part.peers[static_cast<size_t>(leader)], sizeof place); });
  if (color < 0) return nullptr;
  const auto me = std::find(chosen.begin(), chosen.end(), std::tuple(key, rank_)) - chosen.begin();
  return std::unique_ptr<Transport>(new SharedMemory(job_, static_cast<int>(me), address_space_, place));
}

StorageHandle SharedMemory::allocate_shown(size_t bytes) {
  return address_space_ == AddressSpace::one_process ? StorageHandle(backend(Device::cpu).allocate(bytes))
                                                     : arena_->allocate(bytes);
}

std::string SharedMemory::busy_with(const std::string& what) { return job_->busy_with(members_[rank_], what); }

void SharedMemory::finalize(Site site) {
  expose(describe(Verb::finalize, site), {}, 0, [](const Part&) {});
  for (int r = 0; r < size_; ++r)
    if (const Offset next = job_->at<Message>(channel(r, rank_).last_received)->next.load())
      job_->fail(members_[rank_],
                 Fault(exit_codes::mismatch, "collective mismatch: a message was never received\n  rank " +
                                                 text(members_[r]) + " sent it to rank " + text(members_[rank_]) +
                                                 " in " + job_->at<Message>(next)->call.text()));
}

}  // namespace weft
