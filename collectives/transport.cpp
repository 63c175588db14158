// SPDX-License-Identifier: Apache-2.0
// Reductions by an exchange in which every rank folds what it reads.
#include "weft/collectives/transport.h"

#include <vector>

#include "weft/collectives/fold.h"
#include "weft/engine/tensor/pool.h"

namespace weft {
namespace {

template <class T> using List = std::vector<T, pool::Allocator<T>>;  // by rank

// Which bytes move, if not all.
struct Moved {
  Moved(int me, int ranks, size_t bytes, const Transport::Terms& terms) {
    if (terms.to_all) return;
    const auto read_by = [&](int r) {
      return terms.slices.empty() ? Transport::Range{0, bytes} : terms.slices[static_cast<size_t>(r)];
    };
    for (int r = 0; r < ranks; ++r) {
      of_peers.push_back(terms.reads(me, r) ? read_by(me) : Transport::Range());
      by_peers.push_back(terms.reads(r, me) ? read_by(r) : Transport::Range());
    }
  }
  Transport::Ranges ranges() const { return {of_peers, by_peers}; }

  List<Transport::Range> of_peers, by_peers;
};

// Folds what a part has of the bytes that this rank reads, the first of which is byte `begin` of the ranks' tensors.
void fold_part(const Transport::Part& part, const Fold& fold, size_t begin, std::span<std::byte> result) {
  if (fold.ranks.empty()) return;
  const auto [from, to] = part.of(static_cast<size_t>(fold.ranks[0]));
  const size_t first = std::max(begin, from), last = std::min(begin + result.size(), to), size = size_of(fold.dtype);
  if (first >= last) return;
  fold.write(part, static_cast<int64_t>((first - from) / size), static_cast<int64_t>((last - first) / size),
             result.data() + (first - begin));
}

size_t begin_of(const Transport& transport, const Transport::Terms& terms) {
  return terms.slices.empty() ? 0 : terms.slices[static_cast<size_t>(transport.rank())].first;
}

class Folding final : public Transport::Request {
 public:
  Folding(std::unique_ptr<Request> inner, Tensor result, size_t begin, const Fold& fold)
      : inner_(std::move(inner)),
        result_(std::move(result)),
        begin_(begin),
        sources_(fold.ranks.begin(), fold.ranks.end()),
        fold_(fold) {
    fold_.ranks = sources_;
  }
  bool ready() override { return inner_->ready(); }
  void finish(Transport::Read) override {
    const std::span<std::byte> result{result_.mutate<std::byte>(), result_.bytes()};
    inner_->finish([&](const Transport::Part& part) { fold_part(part, fold_, begin_, result); });
  }

  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* place, size_t bytes) { pool::give(place, bytes); }

 private:
  std::unique_ptr<Request> inner_;
  Tensor result_;
  const size_t begin_;
  const List<int> sources_;
  Fold fold_;
};

}  // namespace

void Transport::reduce(const Call& call, Bytes mine, std::span<std::byte> result, const Reduction& reduction) {
  const size_t bytes = std::max(mine.size(), result.size()), begin = begin_of(*this, reduction);
  const Moved moves(rank(), size(), bytes, reduction);
  exchange(call, mine, bytes, moves.ranges(),
           [&](const Part& part) { fold_part(part, reduction.fold, begin, result); });
}

auto Transport::start_reduction(const Call& call, Tensor mine, Tensor result, const Reduction& reduction)
    -> std::unique_ptr<Request> {
  const size_t bytes = std::max(mine.bytes(), result.bytes());
  const Moved moves(rank(), size(), bytes, reduction);
  auto started = start(call, std::move(mine), bytes, moves.ranges());
  return std::unique_ptr<Request>(
      new Folding(std::move(started), std::move(result), begin_of(*this, reduction), reduction.fold));
}

}  // namespace weft
