// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a rank does in a collective by messages, as a plain list. The lists of all ranks are all there is of how data
// move: MpiGroup carries out that of its rank, and `weft schedule` prints who sends what to whom.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/message_schedule.h"
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

// Which ranks' tensors each rank reads in a reduction. Readers of the same ranks have one fold.
struct Readers {
  // Every rank reads every rank's.
  explicit Readers(int ranks)
      : folds(1), reader_of(1), fold_of(static_cast<size_t>(ranks)), is_read(fold_of.size(), true) {
    for (int source = 0; source < ranks; ++source) folds[0].push_back(source);
    most_sources = ranks - 1;
  }
  Readers(int ranks, FunctionRef<bool(int reader, int source)> reads) : is_read(static_cast<size_t>(ranks)) {
    for (int reader = 0; reader < ranks; ++reader) {
      std::vector<int> sources;
      for (int source = 0; source < ranks; ++source)
        if (reads(reader, source)) sources.push_back(source), is_read[static_cast<size_t>(source)] = true;
      const auto same = std::find(folds.begin(), folds.end(), sources);
      fold_of.push_back(sources.empty() ? -1 : static_cast<int>(same - folds.begin()));
      const bool reads_itself = std::find(sources.begin(), sources.end(), reader) != sources.end();
      most_sources = std::max(most_sources, static_cast<int>(sources.size()) - reads_itself);
      if (!sources.empty() && same == folds.end()) folds.push_back(std::move(sources)), reader_of.push_back(reader);
    }
  }
  // If not, each receives at most one tensor when all are sent as a whole.
  bool add() const { return most_sources >= 2; }

  Fold fold(size_t i, Fold own) const {
    own.ranks = folds[i], own.order = own.order.to(reader_of[i]);
    return own;
  }

  std::vector<std::vector<int>> folds;  // the ranks of each
  std::vector<int> reader_of;           // one of the readers of each
  std::vector<int> fold_of;             // of each reader; -1 for ranks that read nothing
  std::vector<char> is_read;            // of each rank, by any
  int most_sources = 0;                 // of any reader, besides itself
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
