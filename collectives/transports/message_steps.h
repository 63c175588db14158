// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank does in a collective by messages, as a plain list. The lists of all ranks are all there is of how data
// move: MpiGroup carries out that of its rank, and `weft schedule` prints who sends what to whom.
#include <memory>
#include <optional>
#include <vector>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/message_schedule.h"
#include "weft/collectives/transports/readers.h"
#include "weft/engine/tensor/pool.h"

namespace weft {

enum class Where : uint8_t {
  mine,    // what this rank exposes
  result,  // what this rank gets
  board,   // what is kept while the collective lasts
};
struct Piece {
  Where where;
  ByteRange bytes;
};

struct MessageStep {
  // From the pool, since a short message costs little more than an allocation does.
  template <class T> using List = std::vector<T, pool::Allocator<T>>;
  struct Message {
    int peer;
    Piece piece;
  };
  struct Folding {
    Fold fold;
    Piece to;
  };
  struct Copy {
    Piece from, to;
  };
  // A part of an exchange, which the caller reads.
  struct Reading {
    size_t first, last;
    List<size_t> begins;
  };

  const char* what;
  size_t after;  // how many steps must be done before its messages begin
  List<Message> sends = {}, receives = {};
  bool by_mpi = false;  // MPI gathers the pieces of all ranks; they are in rank order, and this rank's is among them
  // When the messages have arrived:
  List<Piece> terms = {};               // where the bytes of each rank are, ...
  std::optional<Reading> reading = {};  // ... for the caller
  List<Folding> folds = {};             // ... or to be folded
  List<Copy> copies = {};
};

struct MessageSteps {
  MessageStep::List<MessageStep> steps;
  size_t board = 0;                        // its bytes
  std::shared_ptr<const Readers> readers;  // whose ranks are those of the folds
};

// Who takes the steps, and how many bytes of each rank move at a time.
struct StepTaker {
  int rank, ranks;
  size_t part;
};

// Each rank sends every other what that one reads.
MessageSteps direct_steps(const StepTaker& taker, const ByteRanges& ranges);
// Each rank sends every other all that it exposes.
MessageSteps exposing_steps(const StepTaker& taker, std::span<const size_t> sizes, bool by_mpi);
// The root sends each rank a slice, and the ranks send theirs to each other. So the root's link carries the bytes
// twice, however many ranks there are.
MessageSteps broadcast_steps(const StepTaker& taker, const ByteRanges& ranges);
// Each rank receives a slice of all tensors that are read, folds these for every reader, and sends it its fold. So no
// rank receives much more than twice the bytes of the result. Every fold has all its terms, so its order and its bits
// are the same. `mine` and `result` may be the same memory.
MessageSteps sum_steps(const StepTaker& taker, size_t bytes, Readers readers, const Fold& fold, bool gathered_by_mpi);
// Recursive halving: a rank swaps half of what it has with one rank after another, rank r with r ^ 1, r ^ 2, r ^ 4 and
// so on, and adds what it gets. So ranks add as the tree over rank numbers does, in log2 n messages. Where there are
// many ranks, that takes less time than a message to each of them. Their number is a power of two.
MessageSteps halving_steps(const StepTaker& taker, std::span<const ByteRange> slices, const Fold& fold, bool to_all);

}  // namespace weft
