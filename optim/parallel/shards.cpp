// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/shards.h"

#include "weft/collectives/placement_conversions.h"

namespace weft {

Shards::Shards(BundlePlan plan) : Shards(plan, layout_of(plan.groups)) {}
Shards::Shards(BundlePlan plan, const FlatLayout& layout)
    : comm_(std::move(plan.comm)),
      owned_(layout.part(comm_->rank().value, comm_->size())),
      parameters_(layout, owned_),
      optimizer_(parameters_, plan.groups, owned_, [this](Tensor& sums) { comm_->all_reduce(sums, sums); }),
      gradient_(layout, optimizer_.values().dtype(), owned_),
      summed_(*comm_) {
  in_use.resize(layout.places().size());
  reached.resize(layout.places().size());
  for (int64_t place = 0; place < static_cast<int64_t>(layout.places().size()); ++place) {
    const Range mine = piece(place);
    shards_.emplace_back(parameter(place).name,
                         optimizer_.values().slice(mine.first - owned_.first, mine.last - owned_.first));
    place_of_shard_.emplace(&shards_.back(), place);
  }
  gradients_.take_only([this](const Parameter& shard) { return place_of_shard_.contains(&shard); });
  gradients_.keep_in([this](const Parameter& shard) { return gradient_.view(place_of_shard_.at(&shard)); });
  gradients_.before_backward([this](Tape& tape) { declare_group(tape, *comm_); });
  gradients_.check_leaves([this](const Parameter& shard, const Tape& tape, Placements leaf) {
    if (const auto place = place_of_shard_.find(&shard); place != place_of_shard_.end())
      summed_.expect_to_fit(parameter(place->second), tape, leaf, comm_.get());
  });
  gradients_.after_backward([this] { summed_.forget(); });
}

Rows Shards::rows(Range range) const {
  Rows rows;
  for (int r = 0; r < comm_->size(); ++r) rows.push_back(intersection(layout().part(r, comm_->size()), range).size());
  return rows;
}

Var Shards::leaf(Tape& tape, int64_t place) const {
  const Parameter& whole = parameter(place);
  Var leaf = tape.frozen(whole) ? tape.constant(shard(place).value) : tape.watch(shard(place));
  if (whole.sharding) leaf = with_placement(leaf, whole.sharding->group, Placement::varying);
  return with_placement(leaf, *comm_, Placement::varying);
}

Tensor Shards::whole(int64_t place, Site site) const {
  const Range all = at(layout().places(), place).range();
  return comm_->all_gather_v(parameters_.part(piece(place)), rows(all), site).reshape(parameter(place).value.shape());
}

void Shards::set(int64_t place, const Tensor& whole) {
  const Range all = at(layout().places(), place).range(), mine = piece(place);
  require(whole.shape() == parameter(place).value.shape(), "sharded: ", parameter(place).name, " is ",
          parameter(place).value.shape(), ", not ", whole.shape());
  if (mine.size() == 0) return;
  const Tensor values = whole.reshape({all.size()}).slice(mine.first - all.first, mine.last - all.first);
  parameters_.part(mine).copy_from(values);
  Tensor& shard = at(shards_, place).value;  // the same memory, or master weights
  shard.copy_from(values.to(shard.dtype()));
}

// A unit may leave some of its parameters unused. A parameter is present if any rank has used it.
void Shards::reduce() {
  Tensor marks({static_cast<int64_t>(shards_.size())}, DType::u8);
  auto* mark = marks.mutate<uint8_t>();
  for (size_t place = 0; place < shards_.size(); ++place)
    mark[place] = reached[place] && gradients_.has(shards_[place]);
  comm_->all_reduce(marks, marks, ReduceOp::maximum);
  const uint8_t* marked = marks.data<uint8_t>();
  present_.assign(marked, marked + shards_.size());
}

void Shards::clear() {
  gradients_.clear();
  std::fill(reached.begin(), reached.end(), false);
}

}  // namespace weft
