// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/mpi/mpi_progress.h"

#include <algorithm>

namespace weft {

const std::byte* MpiGroup::Progress::at(const Piece& piece) const {
  const std::byte* const begins[] = {memories_.mine, memories_.result, memories_.board};
  return begins[static_cast<size_t>(piece.where)] + piece.bytes.first;
}

std::byte* MpiGroup::Progress::at(const Piece& piece) {
  return (piece.where == Where::board ? memories_.board : memories_.result) + piece.bytes.first;
}

void MpiGroup::Progress::begin() {
  for (; begun_ < list_.steps.size() && list_.steps[begun_].after <= done_; ++begun_) {
    const MessageStep& step = list_.steps[begun_];
    OnTheirWay& messages = on_their_way_[begun_];
    if (step.by_mpi) {
      gather(step, messages);
      continue;
    }
    for (const auto& [peer, piece] : step.receives)
      group_.state_->wire.receive(at(piece), piece.bytes.size(), peer, tag_, messages.requests);
    for (const MessageStep::Message& message : step.sends) send(message, messages.requests);
  }
}

void MpiGroup::Progress::send(const MessageStep::Message& message, Wire::Requests& requests) {
  const auto& [peer, piece] = message;
  const Tensor& kept = piece.where == Where::board ? memories_.kept_board : memories_.kept_mine;
  if (kept.defined())
    group_.state_->outbox->send(kept, piece.bytes, peer, tag_, group_.state_->wire);
  else
    group_.state_->wire.send(std::as_const(*this).at(piece), piece.bytes.size(), peer, tag_, requests);
}

void MpiGroup::Progress::gather(const MessageStep& step, OnTheirWay& messages) {
  const size_t first = step.receives[0].piece.bytes.first;
  for (const auto& [peer, piece] : step.receives) {
    messages.counts.push_back(static_cast<int>(piece.bytes.size()));
    messages.places.push_back(static_cast<int>(piece.bytes.first - first));
  }
  group_.state_->wire.gather(std::as_const(*this).at(step.sends[0].piece), at(step.receives[0].piece), messages.counts,
                             messages.places, gather_tag, messages.requests);
}

bool MpiGroup::Progress::arrived() {
  Wire::Requests& requests = on_their_way_[done_].requests;
  int done = 0;
  MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

bool MpiGroup::Progress::go_on() {
  while (done_ < list_.steps.size() && arrived()) {
    if (list_.steps[done_].reading) return true;
    do_step(nullptr);
  }
  return done_ == list_.steps.size();
}

void MpiGroup::Progress::complete(const Read* read) {
  while (done_ < list_.steps.size()) {
    if (Wire::Requests& requests = on_their_way_[done_].requests; !requests.empty()) group_.finish(requests);
    do_step(read);
  }
}

void MpiGroup::Progress::do_step(const Read* read) {
  const MessageStep& step = list_.steps[done_];
  MessageStep::List<const std::byte*> terms;
  for (const Piece& piece : step.terms) terms.push_back(std::as_const(*this).at(piece));
  if (step.reading && read) (*read)({step.reading->first, step.reading->last, terms, step.reading->begins});
  for (const auto& [fold, to] : step.folds) fold.write({0, to.bytes.size(), terms}, at(to));
  for (const auto& [from, to] : step.copies) std::copy_n(std::as_const(*this).at(from), from.bytes.size(), at(to));
  ++done_;
  begin();
}

}  // namespace weft
