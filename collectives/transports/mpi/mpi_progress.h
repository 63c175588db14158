// SPDX-License-Identifier: Apache-2.0
#pragma once
// How far a rank has come with the steps of a collective by messages.
#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

class MpiGroup::Progress {
 public:
  // Where the memories of the steps begin.
  struct Memories {
    const std::byte* mine;
    std::byte *result, *board;
    // What is sent of `mine` and of the board is kept by these, so that no rank waits until others have received it.
    Tensor kept_mine = {}, kept_board = {};
  };
  Progress(MpiGroup& group, MessageSteps list, Memories memories, int tag)
      : group_(group),
        list_(std::move(list)),
        memories_(std::move(memories)),
        tag_(tag),
        on_their_way_(list_.steps.size()) {
    begin();
  }

  // As far as it need not wait. Returns whether nothing is left, but what a caller reads.
  bool go_on();
  // To the end, with what a caller reads, if it does.
  void complete(const Read* read);

 private:
  // The messages of a step.
  struct OnTheirWay {
    Wire::Requests requests;
    std::vector<int> counts, places;  // of what MPI gathers
  };

  const std::byte* at(const Piece& piece) const;
  std::byte* at(const Piece& piece);
  void begin();  // the messages of all steps whose turn has come
  void send(const MessageStep::Message& message, Wire::Requests& requests);
  void gather(const MessageStep& step, OnTheirWay& messages);
  bool arrived();  // all messages of the next step to be done
  void do_step(const Read* read);

  MpiGroup& group_;
  const MessageSteps list_;
  Memories memories_;
  const int tag_;
  MessageStep::List<OnTheirWay> on_their_way_;
  size_t begun_ = 0, done_ = 0;  // steps
};

}  // namespace weft
