// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks. The call comes before the bytes, and both are cut to pieces.
#include <algorithm>
#include <cstring>

#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

void Outbox::send(const Tensor& tensor, Transport::Range range, int to, int tag, MPI_Comm comm) {
  release_delivered();
  for (size_t at = 0; at < range.size(); at += longest_message) {
    const Transport::Range piece = range.piece(at, longest_message);
    MPI_Isend(tensor.data<std::byte>() + piece.first, static_cast<int>(piece.size()), MPI_BYTE, to, tag, comm,
              &messages.emplace_back(Message{tensor}).request);
  }
}

void Outbox::release_delivered() {
  for (int done = 1; done && !messages.empty();) {
    MPI_Test(&messages.front().request, &done, MPI_STATUS_IGNORE);
    if (done) messages.pop_front();
  }
}

void Outbox::go_on() {
  release_delivered();
  for (Transport::Started* collective : collectives) collective->ready();
}

void MpiGroup::send(Call call, GroupRank to, Bytes bytes) {
  require(to.value >= 0 && to.value < size(), "send: to rank ", to, " of a group of ", size());
  call.root = to.value;
  call.sequence = ++state_->sent;
  begin(call);
  Tensor message({static_cast<int64_t>(sizeof call + bytes.size())}, DType::u8);
  std::memcpy(message.mutate<std::byte>(), &call, sizeof call);
  std::copy(bytes.begin(), bytes.end(), message.mutate<std::byte>() + sizeof call);
  state_->outbox->send(message, {0, message.bytes()}, to.value, 0, state_->comm);
  end();
}

Call MpiGroup::receive(Call call, GroupRank from, std::span<std::byte> bytes) {
  require(from.value >= 0 && from.value < size(), "receive: from rank ", from, " of a group of ", size());
  call.root = from.value;
  call.sequence = ++state_->received;
  begin(call);
  MPI_Message matched;
  MPI_Status status;
  wait_until([&] {
    int arrived = 0;
    MPI_Improbe(from.value, 0, state_->comm, &arrived, &matched, &status);
    return arrived != 0;
  });
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::byte> first(static_cast<size_t>(size));
  MPI_Request request;
  MPI_Imrecv(first.data(), size, MPI_BYTE, &matched, &request);
  finish(request);
  Call sent;
  std::memcpy(&sent, first.data(), sizeof sent);
  const Range message{0, sizeof call + bytes.size()};
  if (!sent.same_message(call) || first.size() != message.piece(0, longest_message).size())
    state_->job->fail(state_->rank_on_node, wrong_message(sent, global(from), call, global({rank()})));
  std::copy(first.begin() + sizeof call, first.end(), bytes.begin());
  for (size_t at = first.size(); at < message.size(); at += longest_message) {
    MPI_Irecv(bytes.data() + at - sizeof call, static_cast<int>(message.piece(at, longest_message).size()), MPI_BYTE,
              from.value, 0, state_->comm, &request);
    finish(request);
  }
  end();
  return sent;
}

}  // namespace weft
