// SPDX-License-Identifier: Apache-2.0
// Sums by recursive halving: a rank swaps half of what it has with one rank after another, rank r with r ^ 1, r ^ 2,
// r ^ 4 and so on, and adds what it gets. So ranks add their terms as the tree over rank numbers does, in log2 n
// messages. Where there are many ranks, that takes less time than a message to each of them.
#include <algorithm>

#include "weft/collectives/fold.h"
#include "weft/collectives/transports/mpi/mpi_group.h"

namespace weft {

class MpiGroup::Halves {
 public:
  // `slices` are the bytes of which each rank is to have the sum.
  Halves(MpiGroup& group, Bytes mine, std::vector<Range> slices, const Fold& fold)
      : group_(group), slices_(std::move(slices)), fold_(fold), sums_(mine.begin(), mine.end()) {
    for (int r = 0; r < group.size(); ++r) ranks_.push_back(r);
  }

  // Leaves the sum of this rank's slice in sums().
  void add() {
    for (int distance = 1; distance < group_.size(); distance *= 2) add_half(distance);
  }
  std::span<const std::byte> sums() const { return sums_; }
  // Puts the sums of all slices into `result`.
  void gather(std::span<std::byte> result) {
    place(ranks_, sums_, result);
    for (int distance = group_.size() / 2; distance > 0; distance /= 2) {
      const std::vector<int> own = ranks_;
      std::vector<int> theirs;
      for (const int r : own) theirs.push_back(r ^ distance);
      std::vector<std::byte> send(bytes_of(own, out_)), received(bytes_of(theirs, out_));
      collect(own, result, send);
      swap(group_.rank() ^ distance, send, received);
      place(theirs, received, result);
      ranks_.insert(ranks_.end(), theirs.begin(), theirs.end());
    }
  }

 private:
  size_t elements(int r) const { return slices_[static_cast<size_t>(r)].size() / in_; }
  size_t bytes_of(const std::vector<int>& ranks, size_t element) const {
    size_t bytes = 0;
    for (const int r : ranks) bytes += elements(r) * element;
    return bytes;
  }

  void add_half(int distance) {
    const int me = group_.rank();
    const bool first = distance == 1, last = 2 * distance == group_.size();
    const size_t before = first ? in_ : between_;
    std::vector<int> kept, given;
    for (const int r : ranks_) ((r & distance) == (me & distance) ? kept : given).push_back(r);
    std::vector<std::byte> own, send;
    const std::byte* at = sums_.data();
    for (const int r : ranks_) {
      std::vector<std::byte>& to = (r & distance) == (me & distance) ? own : send;
      const size_t bytes = elements(r) * before;
      const std::byte* const from = first ? sums_.data() + slices_[static_cast<size_t>(r)].first : at;
      to.insert(to.end(), from, from + bytes);
      at += bytes;
    }
    std::vector<std::byte> theirs(own.size());
    swap(me ^ distance, send, theirs);
    const auto count = static_cast<int64_t>(own.size() / before);
    constexpr int both[] = {0, 1};
    Fold fold = first ? fold_.first_stage(both) : fold_.second_stage(both, static_cast<size_t>(group_.size()));
    if (!last) fold = sum_only(fold);
    sums_.resize(static_cast<size_t>(count) * (last ? out_ : between_));
    const bool lower = !(me & distance);
    const std::byte* const peers[] = {lower ? own.data() : theirs.data(), lower ? theirs.data() : own.data()};
    fold.write({0, own.size(), peers}, 0, count, sums_.data());
    ranks_ = std::move(kept);
  }
  // Without the rounding, and the division of a mean, that are the last step's.
  Fold sum_only(Fold fold) const {
    if (fold.op == ReduceOp::mean) fold.op = ReduceOp::sum;
    fold.result_dtype = fold_.between_stages();
    fold.terms = 0;
    return fold;
  }

  void collect(const std::vector<int>& ranks, std::span<const std::byte> from, std::span<std::byte> to) const {
    std::byte* place = to.data();
    for (const int r : ranks)
      place = std::copy_n(from.data() + slices_[static_cast<size_t>(r)].first / in_ * out_, elements(r) * out_, place);
  }
  void place(const std::vector<int>& ranks, std::span<const std::byte> from, std::span<std::byte> to) const {
    const std::byte* at = from.data();
    for (const int r : ranks) {
      std::copy_n(at, elements(r) * out_, to.data() + slices_[static_cast<size_t>(r)].first / in_ * out_);
      at += elements(r) * out_;
    }
  }
  void swap(int peer, std::span<const std::byte> send, std::span<std::byte> receive) {
    Wire::Requests requests;
    group_.state_->wire.receive(receive.data(), receive.size(), peer, swap_tag, requests);
    group_.state_->wire.send(send.data(), send.size(), peer, swap_tag, requests);
    group_.finish(requests);
  }

  MpiGroup& group_;
  const std::vector<Range> slices_;
  const Fold fold_;
  const size_t in_ = size_of(fold_.dtype), between_ = size_of(fold_.between_stages()),
               out_ = size_of(fold_.result_dtype);  // of an element
  std::vector<int> ranks_;                          // whose slices this rank has sums of
  std::vector<std::byte> sums_;  // of these slices, one behind the other; at first, this rank's tensor
};

void MpiGroup::sum_in_halves(Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  std::vector<Range> slices(reduction.slices.begin(), reduction.slices.end());
  for (int r = 0; r < size() && reduction.to_all; ++r)
    slices.push_back(Range{0, mine.size()}.slice(static_cast<size_t>(r), static_cast<size_t>(size())));
  Halves halves(*this, mine, std::move(slices), reduction.fold);
  halves.add();
  if (reduction.to_all)
    halves.gather(result);
  else
    std::copy(halves.sums().begin(), halves.sums().end(), result.begin());
}

}  // namespace weft
