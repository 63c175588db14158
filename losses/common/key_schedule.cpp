// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/common/key_schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "weft/collectives/collectives.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

struct Request {
  const Var& own;
  const Rows& rows;
  Communicator& comm;
  const BlockFunction& function;
  Site site;

  int me() const { return comm.rank().value; }
  int64_t rows_of(int rank) const { return rows[static_cast<size_t>(rank)]; }
  RowRun run_of(int rank) const {
    return {std::accumulate(rows.begin(), rows.begin() + rank, int64_t{0}), rows_of(rank)};
  }
};

// Some rows of every rank. parts[r] counts from the first row of rank r.
using Parts = RowRuns;

// The global numbers of these rows, in as few runs as possible.
RowRuns numbers_of(const Parts& parts, const Request& r) {
  RowRuns runs;
  for (int rank = 0; rank < r.comm.size(); ++rank) {
    const auto [offset, count] = parts[static_cast<size_t>(rank)];
    const int64_t first = r.run_of(rank).first + offset;
    if (count == 0) continue;
    if (!runs.empty() && runs.back().first + runs.back().count == first)
      runs.back().count += count;
    else
      runs.push_back({first, count});
  }
  return runs;
}

Var gathered(const Var& own, const Parts& parts, Communicator& comm, Site site) {
  Rows counts;
  for (const RowRun& part : parts) counts.push_back(part.count);
  const auto [first, count] = parts[static_cast<size_t>(comm.rank().value)];
  return all_gather_v(count == own.shape()[0] ? own : slice(own, 0, first, first + count), counts, comm, site);
}

void apply_to(const Var& rows, const RowRuns& runs, const BlockFunction& function, BlockResults& results) {
  if (rows.shape()[0] > 0) results.push_back({function({rows, runs}), runs});
}

void gather(const Request& r, BlockResults& results) {
  Parts all;
  for (const int64_t count : r.rows) all.push_back({0, count});
  apply_to(gathered(r.own, all, r.comm, r.site), numbers_of(all, r), r.function, results);
}

// Keeps no block: backward gathers it again.
void apply_checkpointed(const Request& r, const Parts& parts, BlockResults& results) {
  const RowRuns runs = numbers_of(parts, r);
  if (runs.empty()) return;
  const auto piece = [=, &comm = r.comm, function = r.function, site = r.site](std::span<const Var> own) {
    return function({gathered(own[0], parts, comm, site), runs});
  };
  results.push_back({checkpoint(piece, {r.own}), runs});
}

void per_rank(const Request& r, BlockResults& results) {
  for (int rank = 0; rank < r.comm.size(); ++rank) {
    Parts parts(r.rows.size(), RowRun{0, 0});
    parts[static_cast<size_t>(rank)].count = r.rows_of(rank);
    apply_checkpointed(r, parts, results);
  }
}

void chunked(const Request& r, int64_t chunk, BlockResults& results) {
  require(chunk > 0, "schedule: chunks of ", chunk, " rows");
  const int64_t most = *std::max_element(r.rows.begin(), r.rows.end());
  for (int64_t begin = 0; begin < most; begin += chunk) {
    Parts parts;
    for (const int64_t count : r.rows) {
      const int64_t first = std::min(begin, count);
      parts.push_back({first, std::min(chunk, count - first)});
    }
    apply_checkpointed(r, parts, results);
  }
}

// Passes every rank's rows around the ring, `by` ranks at every hop. All ranks know each other's row counts, so blocks
// of different sizes travel without padding.
class Stream {
 public:
  Stream(const Request& request, int by, int hops) : r_(request), by_(by), left_(hops), at_(request.own) {}

  bool moving() const { return next_.has_value(); }
  void depart() {
    if (left_-- > 0) next_ = start(AllToAll{counts()}, at_, r_.comm, r_.site);
  }
  void arrive() {
    at_ = std::exchange(next_, std::nullopt)->wait();
    ++hops_;
  }
  const Var& rows() const { return at_; }
  RowRun run() const { return r_.run_of(owner(r_.me())); }

 private:
  int around(int rank) const { return (rank % r_.comm.size() + r_.comm.size()) % r_.comm.size(); }
  int owner(int rank) const { return around(rank - by_ * hops_); }  // the rank whose rows `rank` has now
  Counts counts() const {
    Counts counts(r_.rows.size(), Rows(r_.rows.size(), 0));
    for (int rank = 0; rank < r_.comm.size(); ++rank)
      counts[static_cast<size_t>(rank)][static_cast<size_t>(around(rank + by_))] = r_.rows_of(owner(rank));
    return counts;
  }

  const Request& r_;
  const int by_;
  int left_, hops_ = 0;
  Var at_;
  std::optional<Started> next_;
};

// The next blocks are in flight while the function runs on this one.
void around(const Request& r, bool both_ways, BlockResults& results) {
  const int others = r.comm.size() - 1, back = both_ways ? others / 2 : 0;
  Stream streams[] = {{r, 1, others - back}, {r, -1, back}};
  for (Stream& stream : streams) stream.depart();
  apply_to(r.own, {r.run_of(r.me())}, r.function, results);
  while (streams[0].moving())
    for (Stream& stream : streams)
      if (stream.moving()) {
        stream.arrive();
        const Var rows = stream.rows();
        const RowRun run = stream.run();
        stream.depart();
        apply_to(rows, {run}, r.function, results);
      }
}

}  // namespace

BlockResults map_blocks(const Var& own, const Rows& rows, const KeySchedule& schedule, Communicator& comm,
                        const BlockFunction& function, Site site) {
  const Request request{own, rows, comm, function, site};
  BlockResults results;
  switch (schedule.kind) {
    case KeySchedule::gather: gather(request, results); break;
    case KeySchedule::ring: around(request, false, results); break;
    case KeySchedule::both_ways: around(request, true, results); break;
    case KeySchedule::per_rank: per_rank(request, results); break;
    case KeySchedule::chunked: chunked(request, schedule.chunk, results); break;
  }
  return results;
}

Tensor places_in(const RowRuns& runs, const Tensor& numbers) {
  Tensor places(numbers.shape(), DType::i64);
  auto* place = places.mutate<int64_t>();
  std::fill_n(place, places.size(), -1);
  const auto* number = numbers.data<int64_t>();
  int64_t before = 0;
  for (const auto& [first, count] : runs) {
    for (int64_t i = 0; i < numbers.size(); ++i)
      if (number[i] >= first && number[i] < first + count) place[i] = before + number[i] - first;
    before += count;
  }
  return places;
}

Var in_order(std::span<const BlockResult> parts) {
  using Piece = std::pair<int64_t, Var>;
  std::vector<Piece, pool::Allocator<Piece>> pieces;
  for (const BlockResult& part : parts) {
    int64_t before = 0;
    for (const auto& [first, count] : part.runs) {
      pieces.emplace_back(first, slice(part.result, 0, before, before + count));
      before += count;
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Vars values;
  for (const auto& [first, value] : pieces) values.push_back(value);
  return concat(values, 0);
}

}  // namespace weft
