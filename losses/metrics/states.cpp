// SPDX-License-Identifier: Apache-2.0
#include "weft/losses/metrics/states.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/collectives/collectives.h"
#include "weft/collectives/fold.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
#include "weft/losses/common/precision.h"

namespace weft {
namespace {

Var flat(const Var& x) { return reshape(x, {x.size()}); }

// Zeros that stay on the tape, so that this rank takes part in backward.
Var nothing_of(const Var& x) {
  const Var zeros = constant_like(Tensor::zeros(x.shape(), x.dtype(), x.device()), x);
  return where(constant_like(Tensor::zeros(x.shape(), DType::u8, x.device()), x), x, zeros);
}

// The sum over the rows of (ranks, n), in the order in which an all_reduce adds them. sum() promises no order.
Var sum_over_ranks(const Var& x) {
  std::vector<int> ranks(static_cast<size_t>(x.shape()[0]));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto term = [&](int rank) { return Var(x.value().slice(rank, rank + 1).reshape({x.shape()[1]})); };
  const Var total = fold_over_ranks(ranks, term, [](const Var& a, const Var& b) { return a + b; });
  return straight_through(constant_like(total.value(), x), sum(x, 0));
}

// The permutation from rank order, in which each rank's parts are consecutive, to part order, in which each part's
// ranks are.
Tensor part_by_part(const std::vector<Rows>& sizes) {
  int64_t all = 0;
  std::vector<int64_t> begins;  // of each rank's next part
  for (const Rows& parts : sizes) {
    begins.push_back(all);
    all = std::accumulate(parts.begin(), parts.end(), all);
  }
  Tensor order({all}, DType::i64);
  int64_t* next = order.mutate<int64_t>();
  for (size_t p = 0; p < sizes[0].size(); ++p)
    for (size_t r = 0; r < sizes.size(); ++r) {
      std::iota(next, next + sizes[r][p], begins[r]);
      begins[r] += sizes[r][p];
      next += sizes[r][p];
    }
  return order;
}

}  // namespace

struct States::Entry {
  Kind kind;
  std::string name;
  Shape shape;           // of one row, for kinds with rows
  Vars updates = {};     // all updates for kinds with rows; else one, as it is sent
  int64_t all_rows = 0;  // of a cat, on all ranks
  Var value = {};

  bool of_rows() const { return kind == Kind::max || kind == Kind::min || kind == Kind::cat; }
  int64_t width() const { return shape.size() + (kind == Kind::mean); }  // as sent, or of a row of a cat
  int64_t own_rows() const {
    const auto add = [](int64_t rows, const Var& x) { return rows + x.shape()[0]; };
    return std::accumulate(updates.begin(), updates.end(), int64_t{0}, add);
  }

  // A mean is sent with its weight behind it.
  Var weighted(const Var& x, double weight) const {
    const Var w = constant_like(Tensor::full({1}, weight, x.dtype(), x.device()), x);
    return concat({flat(weight == 0 ? nothing_of(x) : x * weight), w}, 0);
  }
  Var extreme(const Var& rows) const { return kind == Kind::max ? weft::max(rows, 0) : weft::min(rows, 0); }

  Var mine() const {  // this rank's vector, as it is sent
    if (!of_rows()) return updates[0];
    const Var rows = concat(updates, 0);
    if (kind == Kind::cat) return flat(rows);
    const double neutral = kind == Kind::max ? -INFINITY : INFINITY;
    return flat(extreme(rows.shape()[0] > 0 ? rows : pad(rows, 0, 0, 1, neutral)));
  }

  // The value of this state, from the sums over ranks, the matrix of the ranks' vectors, or all rows.
  Var completed(const Var& x) const {
    switch (kind) {
      case Kind::sum: return reshape(x, shape);
      case Kind::mean: return divided(x);
      case Kind::stack: return reshape(x, shape.with_inserted(0, x.shape()[0]));
      case Kind::cat: return reshape(x, shape.with_inserted(0, all_rows));
      default: return reshape(extreme(x), shape);
    }
  }
  Var divided(const Var& x) const {
    const int64_t size = shape.size();
    const Var weight = detach(reshape(slice(x, 0, size, size + 1), {}));
    const Tensor none = equal(weight.value(), Tensor::zeros({}, weight.dtype(), weight.device())).to(weight.dtype());
    return reshape(slice(x, 0, 0, size) / repeat(weight + constant_like(none, weight), 0, size), shape);
  }
};

States::States(Communicator& comm) : comm_(comm) {}
States::~States() = default;

States::State States::sum(const char* name, const Var& x) { return add(Kind::sum, name, x); }
States::State States::mean(const char* name, const Var& x, double weight) { return add(Kind::mean, name, x, weight); }
States::State States::max(const char* name, const Var& x) { return add(Kind::max, name, x); }
States::State States::min(const char* name, const Var& x) { return add(Kind::min, name, x); }
States::State States::stack(const char* name, const Var& x) { return add(Kind::stack, name, x); }
States::State States::cat(const char* name, const Var& x) { return add(Kind::cat, name, x); }

void States::State::update(const Var& x, double weight) const { states_->update(*entry_, x, weight); }
const Var& States::State::value() const {
  require(entry_->value.defined(), "States: '", entry_->name, "' has no value before exchange()");
  return entry_->value;
}

States::State States::add(Kind kind, const char* name, const Var& x, double weight) {
  auto entry = std::make_unique<Entry>(Entry{kind, name, x.shape()});
  if (entry->of_rows()) {
    require(x.shape().rank() > 0, "States: '", name, "' is made of rows; a scalar has none");
    entry->shape = x.shape().without(0);
  }
  update(*entry, x, weight);
  entries_.push_back(std::move(entry));
  return {*this, *entries_.back()};
}

void States::update(Entry& entry, const Var& given, double weight) {
  require(!exchanged_, "States: '", entry.name, "' comes after exchange(); begin new States");
  require(is_floating(given.dtype()), "States: '", entry.name, "' must have a floating type, not ", given.dtype());
  expect_placement("States, '" + entry.name + "'", given, comm_, {Placement::varying},
                   "a state is what each rank has of its own");
  const Var x = precise(given);
  const Shape& shape = entry.of_rows() && x.shape().rank() > 0 ? x.shape().without(0) : x.shape();
  require(shape == entry.shape && (!entry.of_rows() || x.shape().rank() > 0), "States: '", entry.name, "' has ",
          entry.of_rows() ? "rows " : "shape ", entry.shape, " and cannot be updated with ", x.shape());
  if (entries_.empty() && entry.updates.empty()) dtype_ = x.dtype();
  require(x.dtype() == dtype_, "States: '", entry.name, "' is ", x.dtype(), ", but the others are ", dtype_,
          "; all travel in one vector");
  require(weight == 1 || entry.kind == Kind::mean, "States: '", entry.name, "' is no mean, so it has no weights");
  require(weight >= 0, "States: '", entry.name, "' has a weight of ", weight);
  if (entry.of_rows()) return entry.updates.push_back(x);
  require(entry.kind != Kind::stack || entry.updates.empty(), "States: '", entry.name, "' has one part of each rank");
  const Var part = entry.kind == Kind::mean ? entry.weighted(x, weight) : flat(x);
  if (entry.updates.empty()) return entry.updates.push_back(part);
  entry.updates[0] = entry.updates[0] + part;
}

int64_t States::width_before(Kind kind) const {
  const auto add = [=](int64_t width, const auto& entry) { return width + (entry->kind < kind ? entry->width() : 0); };
  return std::accumulate(entries_.begin(), entries_.end(), int64_t{0}, add);
}

// The vectors of all ranks, reordered: first the parts of fixed width in rank order, then each cat's rows in rank
// order.
Var States::gathered(const Var& mine, Site site) {
  const auto is_cat = [](const auto& entry) { return entry->kind == Kind::cat; };
  const std::span cats(std::find_if(entries_.begin(), entries_.end(), is_cat), entries_.end());
  if (cats.empty()) return all_gather(mine, comm_, site);
  const int64_t fixed = width_before(Kind::cat);
  const size_t parts = cats.size() + 1, ranks = static_cast<size_t>(comm_.size());
  Tensor own({static_cast<int64_t>(cats.size())}, DType::i64);
  for (size_t c = 0; c < cats.size(); ++c) own.mutate<int64_t>()[c] = cats[c]->own_rows();
  const Tensor rows = comm_.all_gather(own, site);

  std::vector<Rows> sizes(ranks, Rows(parts, fixed));  // of each rank's parts: the fixed part, then the cats
  Rows lengths;
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t c = 0; c < cats.size(); ++c) {
      const int64_t count = rows.data<int64_t>()[r * cats.size() + c];
      cats[c]->all_rows += count;
      sizes[r][c + 1] = count * cats[c]->width();
    }
    lengths.push_back(std::accumulate(sizes[r].begin(), sizes[r].end(), int64_t{0}));
  }
  const Var all = all_gather_v(mine, lengths, comm_, site);
  if (fixed == 0 && cats.size() == 1) return all;
  return gather_rows(all, constant_like(part_by_part(sizes).to(all.device()), all));
}

void States::exchange(Site site) {
  require(!exchanged_ && !entries_.empty(),
          "States: ", exchanged_ ? "exchange() is called once; begin new States" : "there is nothing to exchange");
  exchanged_ = true;
  std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a->kind < b->kind; });
  Vars parts;
  for (const auto& entry : entries_) parts.push_back(entry->mine());
  const Var mine = concat(parts, 0);
  if (entries_.back()->kind <= Kind::mean) return complete(all_reduce(mine, comm_, ReduceOp::sum, site), {}, {});
  const int64_t ranks = comm_.size(), fixed = width_before(Kind::cat);
  const Var everyones = gathered(mine, site), columns = reshape(slice(everyones, 0, 0, ranks * fixed), {ranks, fixed});
  complete(sum_over_ranks(slice(columns, 1, 0, width_before(Kind::max))), columns, everyones);
}

Var mean_over_ranks(const char* name, const Var& per_sample, Communicator& comm, Site site) {
  const int64_t count = per_sample.shape()[0];
  States states(comm);
  const auto result = states.mean(name, sum(per_sample, 0) / static_cast<double>(std::max<int64_t>(count, 1)),
                                  static_cast<double>(count));
  states.exchange(site);
  return result.value();
}

void States::complete(const Var& sums, const Var& columns, const Var& everyones) {
  int64_t at = 0, next_cat = comm_.size() * width_before(Kind::cat);
  for (const auto& entry : entries_) {
    const int64_t end = at + entry->width();
    if (entry->kind <= Kind::mean) {
      entry->value = entry->completed(slice(sums, 0, at, end));
    } else if (entry->kind < Kind::cat) {
      entry->value = entry->completed(slice(columns, 1, at, end));
    } else {
      const int64_t begin = std::exchange(next_cat, next_cat + entry->all_rows * entry->width());
      entry->value = entry->completed(slice(everyones, 0, begin, next_cat));
    }
    entry->updates.clear();
    at = end;
  }
}

}  // namespace weft
