// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks. The call comes before the bytes, and the wire cuts both to pieces.
#include <algorithm>
#include <cstring>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

void Outbox::send(const Tensor& tensor, Transport::Range range, int to, int tag, const Wire& wire) {
  release_delivered();
  if (range.size() == 0) return;
  Message& message = messages.emplace_back(Message{tensor, {}});
  wire.send(tensor.data<std::byte>() + range.first, range.size(), to, tag, message.requests);
}

void Outbox::release_delivered() {
  for (int done = 1; done && !messages.empty();) {
    Wire::Requests& requests = messages.front().requests;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done) messages.pop_front();
  }
}

void MpiGroup::send(Call call, GroupRank to, Bytes bytes) {
  require(to.value >= 0 && to.value < size(), "send: to rank ", to, " of a group of ", size());
  call.root = to.value;
  call.sequence = ++state_->sent;
  begin(call);
  Tensor message({static_cast<int64_t>(sizeof call + bytes.size())}, DType::u8);
  std::memcpy(message.mutate<std::byte>(), &call, sizeof call);
  std::copy(bytes.begin(), bytes.end(), message.mutate<std::byte>() + sizeof call);
  state_->outbox->send(message, {0, message.bytes()}, to.value, 0, state_->wire);
  end();
}

Call MpiGroup::receive(Call call, GroupRank from, std::span<std::byte> bytes) {
  require(from.value >= 0 && from.value < size(), "receive: from rank ", from, " of a group of ", size());
  call.root = from.value;
  call.sequence = ++state_->received;
  begin(call);
  MPI_Message matched;
  MPI_Status status;
  wait_until([&] { return state_->wire.has_arrived(from.value, 0, matched, status); });
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::byte> first(static_cast<size_t>(size));
  Wire::Requests requests(1);
  MPI_Imrecv(first.data(), size, MPI_BYTE, &matched, requests.data());
  finish(requests);
  Call sent;
  std::memcpy(&sent, first.data(), sizeof sent);
  const Range message{0, sizeof call + bytes.size()};
  if (!sent.same_message(call) || first.size() != message.piece(0, Wire::piece).size())
    state_->job->fail(state_->rank_on_node, wrong_message(sent, global(from), call, global({rank()})));
  std::copy(first.begin() + sizeof call, first.end(), bytes.begin());
  const std::span<std::byte> rest = bytes.subspan(first.size() - sizeof call);
  state_->wire.receive(rest.data(), rest.size(), from.value, 0, requests);
  finish(requests);
  end();
  return sent;
}

}  // namespace weft
