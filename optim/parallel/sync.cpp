// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/sync.h"

#include <algorithm>
#include <cstring>

#include "weft/collectives/group_placement.h"
#include "weft/engine/kernels/backend.h"

namespace weft {
namespace {

constexpr int64_t header = 2 * sizeof(int64_t);  // of a rank's state

DType sum_type(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

Tensor allocate(Communicator& comm, int64_t elements, DType dtype, Device device, bool common) {
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  StorageHandle memory = device == Device::cpu && common ? comm.allocate_common(bytes) : StorageHandle();
  if (!memory) memory = StorageHandle(backend(device).allocate(bytes));
  return Tensor(memory, 0, {elements}, dtype);
}

}  // namespace

GradientSync::GradientSync(const FlatLayout& layout, Communicator& comm, Options options)
    : comm_(comm.duplicate()),
      gathering_(comm.duplicate()),
      control_(comm.duplicate()),
      options_(options),
      owned_(options.sharded ? layout.part(comm.rank().value, comm.size()) : layout.all()),
      buckets_(layout, options.bucket, *comm_, options.frees ? Buckets::Keep::nothing : Buckets::Keep::memory),
      summed_(comm),
      present_(layout.places().size()),
      filled_(static_cast<size_t>(buckets_.count())) {
  // Whole sums that are reduced in finish() may share memory among ranks, so that each rank computes only its part.
  const bool common = !options.sharded && !options.frees && options.when == When::at_finish;
  reduced_ = allocate(*comm_, owned_.size(), sum_type(layout.dtype()), layout.device(), common);
  if (common && comm.size() == 1 && reduced_.dtype() == layout.dtype()) buckets_.keep_in(reduced_);  // the same values
  // A loss of parameters alone, which no collective has shown to the tape, counts once over this group.
  gradients().before_backward([this](Tape& tape) { declare_group(tape, *comm_); });
  gradients().check_leaves([this](const Parameter& parameter, const Tape& tape, Placements leaf) {
    summed_.expect_to_fit(parameter, tape, leaf);
  });
  gradients().after_arrival([this](const Parameter& parameter) {
    require(!finished_, "gradients: ", parameter.name, " gets another after finish(); clear() begins the next step");
    if (overlapping_) start_complete_buckets();  // of earlier parameters, which all hooks have seen by now
    buckets_.arrived(parameter);
  });
  gradients().between_pullbacks([this] { go_on(); });
  gradients().after_backward([this] { end_pass(); });
  start_pass();
}

void GradientSync::start_pass() {
  overlapping_ = options_.when == When::in_every_pass;
  if (overlapping_) buckets_.start_pass();
}

void GradientSync::end_pass() {
  summed_.forget();
  if (overlapping_) {
    start_complete_buckets();
    while (position_ % buckets_.count() != 0 && may_start()) start_next();  // buckets without gradients on this rank
  }
  start_pass();
}

void GradientSync::expect_last_pass() {
  if (options_.when != When::in_last_pass) return;
  overlapping_ = true;
  buckets_.start_pass();
}

// Another rank may start none of these reductions before finish(), so this rank must not have to wait for a free slot.
bool GradientSync::may_start() const { return started_.size() < Transport::max_started; }

void GradientSync::start_complete_buckets() {
  while (may_start() && buckets_.complete(position_ % buckets_.count())) {
    start_next();
    if (position_ % buckets_.count() == 0) return;
  }
}

Tensor GradientSync::local(int64_t bucket) {
  Tensor values = buckets_.take(bucket);
  if (values.dtype() == DType::bf16) values = values.to(DType::f32);
  before_(buckets_.range(bucket), values);
  return values;
}

Rows GradientSync::rows(Range range) const {
  Rows rows;
  for (int r = 0, n = comm_->size(); r < n; ++r)
    rows.push_back(options_.sharded ? intersection(buckets_.layout().part(r, n), range).size()
                                    : range.size() * (r + 1) / n - range.size() * r / n);
  return rows;
}

Tensor GradientSync::part(int64_t bucket) const {
  const Range mine = intersection(owned_, buckets_.range(bucket));
  return mine.size() == 0 ? reduced_.slice(0, 0) : reduced_.slice(mine.first - owned_.first, mine.last - owned_.first);
}

void GradientSync::start_next() {
  const int64_t bucket = position_++ % buckets_.count();
  const Rows parts = rows(buckets_.range(bucket));
  Tensor values = local(bucket);
  started_.push_back(options_.frees && !options_.sharded ? comm_->start(AllReduce{}, std::move(values))
                                                         : comm_->start(ReduceScatter{parts}, std::move(values)));
  if (options_.frees) collect_ready();
}

// Lets reductions go on during backward, and begins to gather the sums that are there.
void GradientSync::go_on() {
  if (started_.empty()) return;
  comm_->go_on();
  while (gathers() && gathers_.size() < started_.size() && started_[gathers_.size()].ready()) start_gather();
}

void GradientSync::start_gather() {
  const size_t i = gathers_.size();
  const Range bucket = buckets_.range(static_cast<int64_t>(i) % buckets_.count());
  gathers_.push_back(gathering_->start(AllGather{rows(bucket)}, started_[i].wait()));
}

// Receives the sums that are ready, to free their buffers. It makes no calls, because other ranks may not be ready.
void GradientSync::collect_ready() {
  for (; collected_ < started_.size() && started_[collected_].ready(); ++collected_)
    receive(static_cast<int64_t>(collected_) % buckets_.count(), started_[collected_].wait());
}

void GradientSync::receive(int64_t bucket, const Tensor& sum) {
  Tensor mine = part(bucket);
  if (options_.frees && filled_[static_cast<size_t>(bucket)])
    backend(mine.device()).accumulate(1, sum, mine);
  else
    mine.copy_from(sum);
  report_reduced(bucket);
}

void GradientSync::report_reduced(int64_t bucket) {
  filled_[static_cast<size_t>(bucket)] = true;
  const Tensor mine = part(bucket);
  after_(intersection(owned_, buckets_.range(bucket)), mine);
}

void GradientSync::reduce(int64_t bucket) {
  if (options_.sharded || options_.frees) {
    const Rows parts = rows(buckets_.range(bucket));
    const Tensor values = local(bucket);
    return receive(bucket, options_.sharded ? comm_->reduce_scatter_v(values, parts) : comm_->all_reduce(values));
  }
  Tensor mine = part(bucket);
  comm_->all_reduce(local(bucket), mine);
  report_reduced(bucket);
}

// Exchanges what every rank must know of the others to complete the sums: how many reductions each rank has started,
// which parameters it has gradients for, and which of its buckets have changed since their last reduction.
void GradientSync::exchange_states() {
  const int64_t places = static_cast<int64_t>(present_.size()), count = buckets_.count();
  const int64_t started[] = {position_, static_cast<int64_t>(gathers_.size())};
  Tensor mine({1, header + places + count}, DType::u8);
  auto* byte = mine.mutate<uint8_t>();
  std::memcpy(byte, started, header);
  for (int64_t place = 0; place < places; ++place) byte[header + place] = buckets_.has(place);
  for (int64_t bucket = 0; bucket < count; ++bucket) byte[header + places + bucket] = buckets_.changed(bucket);
  states_ = control_->all_gather(mine);
  for (int64_t place = 0; place < places; ++place) {
    present_[static_cast<size_t>(place)] = false;
    for (int r = 0; r < comm_->size(); ++r)
      if (states_of(r)[header + place]) present_[static_cast<size_t>(place)] = true;
  }
}

const uint8_t* GradientSync::states_of(int rank) const { return states_.data<uint8_t>() + rank * states_.shape()[1]; }

// How many reductions, and how many gathers of sums, a rank has started.
std::array<int64_t, 2> GradientSync::started_by(int rank) const {
  std::array<int64_t, 2> started;
  std::memcpy(&started, states_of(rank), sizeof started);
  return started;
}

// The number of reductions of a bucket among the first `position` reductions.
int64_t GradientSync::starts(int64_t bucket, int64_t position) const {
  return position / buckets_.count() + (bucket < position % buckets_.count());
}

bool GradientSync::any_rank_has(int64_t bucket) const {
  const std::vector<Place>& places = buckets_.layout().places();
  for (size_t place = 0; place < places.size(); ++place)
    if (present_[place] && intersection(places[place].range(), buckets_.range(bucket)).size() > 0) return true;
  return false;
}

// Whether some rank has added to a bucket since its last reduction. A rank that has just caught up with that reduction
// contributed everything it had.
bool GradientSync::must_be_reduced(int64_t bucket) const {
  const int64_t all = starts(bucket, position_), places = static_cast<int64_t>(present_.size());
  if (all == 0) return any_rank_has(bucket);
  for (int r = 0; r < comm_->size(); ++r)
    if (states_of(r)[header + places + bucket] && starts(bucket, started_by(r)[0]) == all) return true;
  return false;
}

// Every rank starts what any rank has started.
void GradientSync::catch_up() {
  overlapping_ = false;
  exchange_states();
  int64_t reductions = 0, gathers = 0;
  for (int r = 0; r < comm_->size(); ++r) {
    reductions = std::max(reductions, started_by(r)[0]);
    gathers = std::max(gathers, started_by(r)[1]);
  }
  while (position_ < reductions) start_next();
  while (static_cast<int64_t>(gathers_.size()) < gathers) start_gather();
}

void GradientSync::forget_started() {
  started_.clear();
  gathers_.clear();
  collected_ = 0;
}

void GradientSync::finish() {
  require(!finished_, "finish: this step is finished; clear() begins the next");
  catch_up();
  // A later sum of a bucket includes the earlier ones, unless local gradients are freed after each.
  const auto stale = [&](size_t i) {
    const auto reduction = static_cast<int64_t>(i), bucket = reduction % buckets_.count();
    return !options_.frees && (reduction + buckets_.count() < position_ || must_be_reduced(bucket));
  };
  while (gathers() && gathers_.size() < started_.size())
    if (stale(gathers_.size()))
      gathers_.emplace_back();
    else
      start_gather();
  for (size_t i = collected_; i < started_.size(); ++i)
    if (!stale(i))
      receive(static_cast<int64_t>(i) % buckets_.count(), gathers() ? gathers_[i]->wait() : started_[i].wait());
  forget_started();
  for (int64_t bucket = 0; bucket < buckets_.count(); ++bucket)
    if (must_be_reduced(bucket)) reduce(bucket);
  finished_ = true;
}

void GradientSync::clear() {
  if (!finished_ && options_.when != When::at_finish) catch_up();
  finished_ = false;
  buckets_.clear();
  forget_started();
  std::fill(filled_.begin(), filled_.end(), false);
  position_ = 0;
  start_pass();
}

}  // namespace weft
