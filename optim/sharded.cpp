#include "optim/sharded.h"

#include <algorithm>
#include <cmath>

#include "collectives/agreement.h"
#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "engine/backend.h"
#include "engine/ops/elementwise.h"

namespace weft {
namespace {

FlatLayout agreed_layout(const std::vector<Parameter*>& parameters, Communicator& comm) {
  std::vector<NamedTensor> values;
  for (const Parameter* parameter : parameters) values.push_back({parameter->name, parameter->value});
  expect_agreement("sharded", values, comm);
  return FlatLayout(parameters);
}

}  // namespace

Sharded::Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm)
    : comm_(comm),
      layout_(agreed_layout(parameters_of(groups), comm)),
      owned_(layout_.part(comm.rank().value, comm.size())),
      parameters_(layout_, owned_),
      optimizer_(parameters_, groups, {owned_, [this](Tensor& sums) { comm_.all_reduce(sums, sums); }}),
      gradient_(layout_, optimizer_.values().dtype(), owned_),
      in_use_(layout_.places().size()),
      reached_(layout_.places().size()) {
  for (int64_t place = 0; place < static_cast<int64_t>(layout_.places().size()); ++place) {
    const Range mine = piece(place);
    shards_.emplace_back(layout_.places()[static_cast<size_t>(place)].parameter->name,
                         optimizer_.values().slice(mine.first - owned_.first, mine.last - owned_.first));
    place_of_shard_.emplace(&shards_.back(), place);
  }
  gradients_.keep_in([this](const Parameter& shard) {
    const auto found = place_of_shard_.find(&shard);
    require(found != place_of_shard_.end(), "sharded: ", shard.name, " is not among the parameters that are divided");
    return gradient_.view(found->second);
  });
}

Range Sharded::piece(int64_t place) const {
  return common(owned_, layout_.places()[static_cast<size_t>(place)].range());
}

int64_t Sharded::find(const Parameter& parameter) const {
  const int64_t place = layout_.find(parameter);
  require(place >= 0, "sharded: ", parameter.name, " is not among the parameters that are divided");
  return place;
}

const Tensor& Sharded::gradient_of(const Parameter& parameter) const {
  return gradients_[shards_[static_cast<size_t>(find(parameter))]];
}

Tensor Sharded::gradient(const Var& loss, const Parameter& by) {
  const int64_t place = find(by);
  const Var shard = loss.tape()->watch(shards_[static_cast<size_t>(place)]);
  struct Asking {
    std::optional<Question>& asked;
    ~Asking() { asked.reset(); }
  } const asking{asked_};
  asked_ = {place, loss.tape()->place_of(shard)};
  const Tensor mine = loss.tape()->gradient(loss, {shard})[0].value();
  const Range all = layout_.places()[static_cast<size_t>(place)].range(), here = common(all, owned_);
  Tensor whole = Tensor::zeros({all.size()}, mine.dtype(), mine.device());
  whole.slice(here.first - all.first, here.last - all.first).copy_from(mine);
  return whole.reshape(by.value.shape());
}

Rows Sharded::rows(Range range) const {
  Rows rows;
  for (int r = 0; r < comm_.size(); ++r) rows.push_back(common(layout_.part(r, comm_.size()), range).size());
  return rows;
}

Sharded::Unit Sharded::unit(const std::vector<Parameter*>& parameters) const {
  std::vector<int64_t> places;
  for (const Parameter* parameter : parameters) places.push_back(find(*parameter));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::vector<Stretch> stretches;
  for (size_t begin = 0, end; begin < places.size(); begin = end) {
    for (end = begin + 1; end < places.size() && places[end] == places[end - 1] + 1;) ++end;
    stretches.push_back(stretch(places[begin], places[end - 1] + 1));
  }
  return std::make_shared<const std::vector<Stretch>>(std::move(stretches));
}

Sharded::Stretch Sharded::stretch(int64_t first_place, int64_t last_place) const {
  const std::vector<Place>& places = layout_.places();
  const Range all = {places[static_cast<size_t>(first_place)].begin,
                     places[static_cast<size_t>(last_place - 1)].range().last};
  const Range mine = common(all, owned_);
  Packing own{{}, mine.size()}, whole{{}, all.size()};
  if (layout_.device() == Device::cpu)
    own.allocate = whole.allocate = [this](size_t bytes) { return comm_.allocate_shown(bytes); };
  for (int64_t place = first_place; place < last_place; ++place) {
    const auto& [parameter, begin, size] = places[static_cast<size_t>(place)];
    const Range here = common(mine, {begin, begin + size});
    own.slots.push_back({here.first - mine.first, {here.size()}});
    whole.slots.push_back({begin - all.first, parameter->value.shape()});
  }
  return {first_place, last_place, rows(all), std::move(own), std::move(whole)};
}

static bool has(const std::vector<Sharded::Stretch>& unit, int64_t place) {
  return std::any_of(unit.begin(), unit.end(), [place](const Sharded::Stretch& stretch) {
    return stretch.first_place <= place && place < stretch.last_place;
  });
}

// While it exists, the unit's parameters are there. For a question, all but the one that it is about are constants.
class Sharded::InUse {
 public:
  InUse(Sharded& sharded, Tape& tape, const Unit& unit) : sharded_(sharded), tape_(tape), unit_(unit) {
    each_place([&](size_t place) {
      require(!sharded_.in_use_[place], "sharded: ", name(place), " is in use already, by a unit around this one");
    });
    each_place([&](size_t place) { sharded_.in_use_[place] = true; });
  }
  ~InUse() {
    each_place([&](size_t place) {
      sharded_.in_use_[place] = false;
      tape_.stand_in(parameter(place), {});
    });
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  void gather(std::span<const Var> shards, Site site) {
    Communicator& comm = sharded_.comm_;
    for (const Stretch& stretch : *unit_) {
      const auto first = static_cast<size_t>(stretch.first_place), count = stretch.whole.slots.size();
      const Var mine = pack(shards.first(count), stretch.mine);
      const Var flat = cast(all_gather_v(mine, stretch.rows, comm, site), sharded_.layout_.dtype());
      const auto reached = [&sharded = sharded_, first](size_t i) {
        if (!sharded.asked_) sharded.reached_[first + i] = true;
      };
      const Vars parts = unpack(flat, stretch.whole, reached);
      for (size_t i = 0; i < count; ++i) {
        const bool wanted = !sharded_.asked_ || sharded_.asked_->place == static_cast<int64_t>(first + i);
        tape_.stand_in(parameter(first + i), wanted ? parts[i] : derived(parts[i].value(), parts[i]));
      }
      shards = shards.subspan(count);
    }
  }

 private:
  const Parameter& parameter(size_t place) const { return *sharded_.layout_.places()[place].parameter; }
  const std::string& name(size_t place) const { return parameter(place).name; }
  template <class F> void each_place(F f) {
    for (const Stretch& stretch : *unit_)
      for (int64_t place = stretch.first_place; place < stretch.last_place; ++place) f(static_cast<size_t>(place));
  }

  Sharded& sharded_;
  Tape& tape_;
  const Unit& unit_;
};

Var Sharded::run(const Unit& unit, Vars inputs, Function f, Site site) {
  Tape* tape = nullptr;
  for (const Var& input : inputs) tape = input.tape() ? input.tape() : tape;
  require(tape,
          "sharded: a unit's inputs are on no tape; give it tape.constant(x), with a Tape::Pause if no gradients ",
          "are wanted");
  const size_t count = inputs.size();
  const int64_t began = tape->size();
  for (const Stretch& stretch : *unit)
    for (int64_t place = stretch.first_place; place < stretch.last_place; ++place)
      inputs.push_back(spread_as(tape->watch(shards_[static_cast<size_t>(place)]), comm_, Spread::varying));
  const auto piece = [=, this, f = std::move(f)](std::span<const Var> all) {
    if (asked_ && began < asked_->leaf && !has(*unit, asked_->place)) return Var();  // the answer is complete
    InUse in_use(*this, *tape, unit);
    in_use.gather(all.subspan(count), site);
    if (!asked_) return f(all.first(count));
    // What came before the shard does not depend on it.
    Vars later(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    for (Var& input : later)
      if (tape->place_of(input) < asked_->leaf) input = derived(input.value(), input);
    return f(later);
  };
  return checkpoint(piece, std::move(inputs));
}

Var Sharded::run(const Unit& unit, const Var& x, PooledFunction<Var(const Var& x)> f, Site site) {
  const auto of_one = [f = std::move(f)](std::span<const Var> x) { return f(x[0]); };
  return run(unit, Vars{x}, of_one, site);
}

// A parameter of a unit that ran may have been left aside in it. What any rank used is present.
void Sharded::agree_on_present() {
  Tensor marks({static_cast<int64_t>(shards_.size())}, DType::u8);
  auto* mark = marks.mutate<uint8_t>();
  for (size_t place = 0; place < shards_.size(); ++place)
    mark[place] = reached_[place] && gradients_.has(shards_[place]);
  comm_.all_reduce(marks, marks, ReduceOp::maximum);
  const uint8_t* marked = marks.data<uint8_t>();
  present_.assign(marked, marked + shards_.size());
}

double Sharded::step(double rate, double most_norm) {
  agree_on_present();
  const bool clips = !std::isinf(most_norm);
  const double norm = clips ? optimizer_.norm(gradient_.flat(), present_) : 0;
  optimizer_.step(gradient_.flat(), present_, rate, clips ? clip(norm, most_norm) : 1);
  discard();
  return norm;
}

void Sharded::discard() {
  gradients_.clear();
  std::fill(reached_.begin(), reached_.end(), false);
}

Tensor Sharded::whole(const Parameter& parameter, Site site) const {
  const int64_t place = find(parameter);
  const Range all = layout_.places()[static_cast<size_t>(place)].range();
  return comm_.all_gather_v(parameters_.part(piece(place)), rows(all), site).reshape(parameter.value.shape());
}

void Sharded::set(const Parameter& parameter, const Tensor& whole) {
  require(whole.shape() == parameter.value.shape(), "sharded: ", parameter.name, " is ", parameter.value.shape(),
          ", not ", whole.shape());
  const int64_t place = find(parameter);
  const Range all = layout_.places()[static_cast<size_t>(place)].range(), mine = piece(place);
  if (mine.size() == 0) return;
  const Tensor values = whole.reshape({all.size()}).slice(mine.first - all.first, mine.last - all.first);
  parameters_.part(mine).copy_from(values);
  Tensor& shard = shards_[static_cast<size_t>(place)].value;  // the same memory, or master weights
  shard.copy_from(values.to(shard.dtype()));
}

ShardedLayer::ShardedLayer(std::string name, Layer& layer, Sharded& sharded)
    : name_(std::move(name)), layer_(layer), sharded_(sharded), unit_(sharded.unit(layer.parameters())) {
  has(layer);
}

Var ShardedLayer::apply(const Var& x, const Pass& pass) {
  const auto call = [&layer = layer_, pass](const Var& x) { return layer(x, pass); };
  return sharded_.run(unit_, x, call, Site::here(name_.c_str()));
}

}  // namespace weft
