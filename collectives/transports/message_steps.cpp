// SPDX-License-Identifier: Apache-2.0
#include "weft/collectives/transports/message_steps.h"

#include <bit>
#include <utility>

namespace weft {
namespace {

using Messages = MessageStep::List<MessageStep::Message>;

void add(Messages& messages, size_t peer, Piece piece) {
  if (piece.bytes.size() > 0) messages.push_back({static_cast<int>(peer), piece});
}

Piece place(Where where, size_t first, size_t bytes) { return {where, {first, first + bytes}}; }

std::vector<ByteRange> slices_of(const ByteRange& bytes, size_t ranks) {
  std::vector<ByteRange> slices;
  for (size_t r = 0; r < ranks; ++r) slices.push_back(bytes.slice(r, ranks));
  return slices;
}

// Two steps are on their way at a time, each with half of the board. Returns how many must be done before this one.
size_t done_before(size_t step) { return step < 2 ? 0 : step - 1; }

// Each rank goes on as long as it has anything left to send or to receive, which others need not know. What all ranks
// expose is read as parts of it, and other ranges as parts that begin where these do.
MessageSteps swaps(const StepTaker& taker, const ByteRanges& ranges, bool exposes_all) {
  MessageSteps made;
  const size_t n = ranges.of_peers.size(), me = static_cast<size_t>(taker.rank), received = ranges.longest_of_peers();
  size_t half = 0;
  for (size_t r = 0; r < n; ++r) half += r == me ? 0 : ranges.of_peers[r].piece(0, taker.part).size();
  for (size_t at = 0; at < ranges.longest(); at += taker.part) {
    const size_t number = made.steps.size();
    MessageStep& step =
        made.steps.emplace_back(MessageStep{"every rank sends each other what that one reads", done_before(number)});
    if (at < received) {
      const size_t first = exposes_all ? at : 0;
      step.reading = {first, first + std::min(taker.part, received - at), {}};
    }
    size_t next = number % 2 * half;
    made.board = std::max(made.board, next + half);
    for (size_t r = 0; r < n; ++r) {
      const ByteRange in = ranges.of_peers[r].piece(at, taker.part);
      if (step.reading) step.reading->begins.push_back(exposes_all ? at : in.first);
      if (r == me) {
        step.terms.push_back({Where::mine, in});
        continue;
      }
      step.terms.push_back(place(Where::board, next, in.size()));
      next += in.size();
      add(step.receives, r, step.terms.back());
      add(step.sends, r, {Where::mine, ranges.by_peers[r].piece(at, taker.part)});
    }
  }
  return made;
}

// One part after another.
MessageSteps gatherings(const StepTaker& taker, std::span<const size_t> sizes) {
  MessageSteps made;
  const size_t longest = *std::max_element(sizes.begin(), sizes.end()), part = std::min(taker.part, longest);
  made.board = part * sizes.size();
  for (size_t first = 0; first < longest; first += part) {
    MessageStep& step = made.steps.emplace_back(MessageStep{"MPI gathers the tensors of all ranks", made.steps.size()});
    step.by_mpi = true;
    step.reading = {first, std::min(first + part, longest), MessageStep::List<size_t>(sizes.size(), first)};
    const auto piece = [&](size_t r) { return ByteRange{0, sizes[r]}.piece(first, part); };
    size_t next = 0;
    for (size_t r = 0; r < sizes.size(); ++r) {
      step.terms.push_back(place(Where::board, std::exchange(next, next + piece(r).size()), piece(r).size()));
      step.receives.push_back({static_cast<int>(r), step.terms.back()});
      step.sends.push_back({static_cast<int>(r), {Where::mine, piece(static_cast<size_t>(taker.rank))}});
    }
  }
  return made;
}

// The slices of one part of the tensors, which go to the ranks that fold them, and the folds, which go to the readers.
struct SumPart {
  const StepTaker& taker;
  const Readers& readers;
  const Fold& fold;
  const bool gathered_by_mpi;
  const std::vector<ByteRange> slices;
  const size_t board;  // where its place on the board begins

  size_t ranks() const { return slices.size(); }
  size_t me() const { return static_cast<size_t>(taker.rank); }
  const ByteRange& own() const { return slices[me()]; }
  size_t slice() const { return slices[0].size(); }  // the longest
  bool reads(size_t r) const { return readers.fold_of[r] >= 0; }
  size_t board_bytes() const { return (ranks() + (gathered_by_mpi ? 0 : readers.folds.size())) * slice(); }
  Piece term(size_t r) const {
    return r == me() ? Piece{Where::mine, own()} : place(Where::board, board + r * slice(), own().size());
  }
  // If others receive a fold by messages, they may still do so when the result is changed.
  Piece folded(size_t i) const {
    if (gathered_by_mpi) return {Where::result, own()};
    return place(Where::board, board + (ranks() + i) * slice(), own().size());
  }
  Piece folded_for(size_t reader) const { return folded(static_cast<size_t>(readers.fold_of[reader])); }

  MessageStep terms_step(size_t after) const {
    MessageStep step{"rank r gets the r-th slice of all tensors, and adds", after};
    for (size_t r = 0; r < ranks(); ++r) {
      step.terms.push_back(term(r));
      if (r == me()) continue;
      if (readers.is_read[r]) add(step.receives, r, term(r));
      if (readers.is_read[me()]) add(step.sends, r, {Where::mine, slices[r]});
    }
    if (own().size() == 0) return step;
    for (size_t i = 0; i < readers.folds.size(); ++i) step.folds.push_back({readers.fold(i, fold), folded(i)});
    if (reads(me()) && !gathered_by_mpi) step.copies.push_back({folded_for(me()), {Where::result, own()}});
    return step;
  }
  MessageStep results_step(size_t after) const {
    MessageStep step{"rank r sends its sum to all who read it", after};
    step.by_mpi = gathered_by_mpi;
    for (size_t r = 0; r < ranks(); ++r) {
      const Piece slice_of_r{Where::result, slices[r]};
      if (gathered_by_mpi) {
        step.sends.push_back({static_cast<int>(r), folded(0)});
        step.receives.push_back({static_cast<int>(r), slice_of_r});
      } else if (r != me()) {
        if (reads(r)) add(step.sends, r, folded_for(r));
        if (reads(me())) add(step.receives, r, slice_of_r);
      }
    }
    return step;
  }
};

}  // namespace

MessageSteps direct_steps(const StepTaker& taker, const ByteRanges& ranges) { return swaps(taker, ranges, false); }

MessageSteps exposing_steps(const StepTaker& taker, std::span<const size_t> sizes, bool by_mpi) {
  if (by_mpi) return gatherings(taker, sizes);
  std::vector<ByteRange> of_peers;
  for (const size_t size : sizes) of_peers.push_back({0, size});
  return swaps(taker, {of_peers, std::vector(sizes.size(), of_peers[static_cast<size_t>(taker.rank)])}, true);
}

MessageSteps broadcast_steps(const StepTaker& taker, const ByteRanges& ranges) {
  MessageSteps made;
  const size_t n = ranges.of_peers.size(), me = static_cast<size_t>(taker.rank), whole = n * taker.part;
  size_t root = me;
  for (size_t r = 0; r < n; ++r)
    if (r != me && ranges.of_peers[r].size() > 0) root = r;
  const ByteRange all = root == me ? ranges.by_peers[me == 0 ? 1 : 0] : ranges.of_peers[root];
  for (size_t at = 0; at < all.size(); at += whole) {
    const std::vector<ByteRange> slices = slices_of(ByteRange{0, all.size()}.piece(at, whole), n);
    const size_t bytes = slices.back().last - at;
    made.board = std::max(made.board, root == me ? 0 : bytes);
    const auto slice = [&](size_t r) {
      return root == me ? place(Where::mine, all.first + slices[r].first, slices[r].size())
                        : place(Where::board, slices[r].first - at, slices[r].size());
    };
    MessageStep scattered{"the root sends every rank a slice", made.steps.size()};
    MessageStep gathered{"every rank sends its slice to the others", made.steps.size() + 1};
    for (size_t r = 0; r < n; ++r) {
      if (r == me) continue;
      if (root == me) add(scattered.sends, r, slice(r));
      if (root == r) add(scattered.receives, r, slice(me));
      if (root != r) add(gathered.sends, r, slice(me));
      if (root != me) add(gathered.receives, r, slice(r));
    }
    if (const ByteRange read = ranges.of_peers[root]; read.size() > 0) {
      gathered.reading = {0, bytes, MessageStep::List<size_t>(n, 0)};
      gathered.reading->begins[root] = read.first + at;
      gathered.terms.assign(n, {Where::board, {}});
      gathered.terms[root] = root == me ? place(Where::mine, read.first + at, bytes) : place(Where::board, 0, bytes);
    }
    made.steps.push_back(std::move(scattered));
    made.steps.push_back(std::move(gathered));
  }
  return made;
}

// The terms of a part are on their way while the part before is folded and gathered. Two parts are not gathered at a
// time: there would be more on the link before the last part.
MessageSteps sum_steps(const StepTaker& taker, size_t bytes, Readers readers, const Fold& fold, bool gathered_by_mpi) {
  MessageSteps made{{}, 0, std::make_shared<const Readers>(std::move(readers))};
  const size_t whole = static_cast<size_t>(taker.ranks) * taker.part, parts = (bytes + whole - 1) / whole;
  size_t half = 0;
  const auto part = [&](size_t p) {
    return SumPart{taker,
                   *made.readers,
                   fold,
                   gathered_by_mpi,
                   slices_of(ByteRange{0, bytes}.piece(p * whole, whole), static_cast<size_t>(taker.ranks)),
                   p % 2 * half};
  };
  if (parts > 0) half = part(0).board_bytes(), made.board = std::min<size_t>(parts, 2) * half;
  const auto number_of_terms = [](size_t p) { return p == 0 ? 0 : 2 * p - 1; };
  for (size_t p = 0; p < parts; ++p) {
    if (p == 0) made.steps.push_back(part(0).terms_step(0));
    if (p + 1 < parts) made.steps.push_back(part(p + 1).terms_step(p == 0 ? 0 : number_of_terms(p - 1) + 1));
    made.steps.push_back(part(p).results_step(2 * p + 1));  // after its terms and the results before
  }
  return made;
}

namespace {

// On the board, slices are in the order of their numbers' reversed bits: what two ranks swap lies side by side there.
struct Halves {
  const size_t n, me;
  MessageSteps made = {};
  std::vector<size_t> begins = {0};                  // of the slices on the board
  MessageStep::List<MessageStep::Copy> sorted = {};  // the slices of `mine`, and their places there
  size_t held = 0, count = n;                        // the slices of which this rank has sums

  Piece on_board(size_t first, size_t number) const { return {Where::board, {begins[first], begins[first + number]}}; }
  MessageStep& add_step(const char* what) { return made.steps.emplace_back(MessageStep{what, made.steps.size()}); }

  void sort(std::span<const ByteRange> slices) {
    for (size_t i = 0; i < n; ++i) {
      size_t r = 0;
      for (size_t bit = 1; bit < n; bit *= 2) r = 2 * r + ((i & bit) != 0);
      begins.push_back(begins.back() + slices[r].size());
      sorted.push_back({{Where::mine, slices[r]}, on_board(i, 1)});
    }
    add_step("").copies = sorted;
    made.board = 2 * begins.back();  // what another rank sends comes behind
  }
  void add(const Fold& fold) {
    static constexpr int both[] = {0, 1};
    for (size_t distance = 1; distance < n; distance *= 2) {
      count /= 2;
      const bool first = (me & distance) == 0;
      const Piece given = on_board(held + (first ? count : 0), count);
      held += first ? 0 : count;
      const Piece own = on_board(held, count), theirs = place(Where::board, begins.back(), own.bytes.size());
      MessageStep& step = add_step("ranks swap half of what they have, and add");
      weft::add(step.sends, me ^ distance, given);
      weft::add(step.receives, me ^ distance, theirs);
      step.terms = {first ? own : theirs, first ? theirs : own};
      if (own.bytes.size() > 0)
        step.folds.push_back({2 * distance == n ? fold.second_stage(both, n) : fold.first_stage(both), own});
    }
  }
  void keep_own() {
    const Piece own = on_board(held, count);
    made.steps.back().copies.push_back({own, place(Where::result, 0, own.bytes.size())});
  }
  void gather() {
    for (size_t distance = n / 2; distance > 0; distance /= 2) {
      MessageStep& step = add_step("ranks swap the sums that they have");
      weft::add(step.sends, me ^ distance, on_board(held, count));
      weft::add(step.receives, me ^ distance, on_board(held ^ count, count));
      held &= ~count;
      count *= 2;
    }
    for (const auto& [of_mine, board] : sorted)
      made.steps.back().copies.push_back({board, {Where::result, of_mine.bytes}});
  }
};

}  // namespace

MessageSteps halving_steps(const StepTaker& taker, std::span<const ByteRange> slices, const Fold& fold, bool to_all) {
  Halves halves{slices.size(), static_cast<size_t>(taker.rank)};
  halves.sort(slices);
  halves.add(fold);
  to_all ? halves.gather() : halves.keep_own();
  return std::move(halves.made);
}

}  // namespace weft
