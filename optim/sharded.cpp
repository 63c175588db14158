#include "optim/sharded.h"

#include <algorithm>

#include "collectives/ops.h"
#include "collectives/spreads.h"
#include "engine/ops/elementwise.h"
#include "engine/record.h"

namespace weft {
namespace {

// The same values on a node of their own, which may be spread otherwise: all that is packed together is spread alike.
Var unpacked(const Var& x);
const Op unpacked_op{"unpacked", {{"", {{2, 3}}, [](auto x) { return unpacked(x[0]); }}}, Algebra::linear};
Var unpacked(const Var& x) {
  return record(unpacked_op, x.value(), from(x, [](const Var& g) { return g; }));
}

Spread placed_over(const Communicator& group, const Parameter& parameter) {
  const bool holds = parameter.placement && &parameter.placement->group == &group;
  return holds ? parameter.placement->spread() : Spread::replicated;
}

bool has(const std::vector<Sharded::Stretch>& unit, const Shards* shards, int64_t place) {
  return std::any_of(unit.begin(), unit.end(),
                     [=](const Sharded::Stretch& stretch) { return stretch.has(shards, place); });
}

}  // namespace

Sharded::Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm) {
  for (BundlePlan& plan : plan_bundles("sharded", groups, comm)) add(std::make_unique<Shards>(std::move(plan)));
}

const Tensor& Sharded::gradient_of(const Parameter& parameter) const {
  const auto [bundle, place] = home_of(parameter);
  return shards(bundle).gradients()[shards(bundle).shard(place)];
}

Tensor Sharded::gradient(const Var& loss, const Parameter& by) {
  const auto [bundle, place] = home_of(by);
  const Shards& home = shards(bundle);
  const Var shard = home.leaf(*loss.tape(), place);
  struct Asking {
    std::optional<Question>& asked;
    ~Asking() { asked.reset(); }
  } const asking{asked_};
  asked_ = {&home, place, loss.tape()->place_of(shard)};
  const Tensor mine = loss.tape()->gradient(loss, {shard})[0].value();
  const Range all = home.layout().places()[static_cast<size_t>(place)].range(), here = common(all, home.owned());
  Tensor whole = Tensor::zeros({all.size()}, mine.dtype(), mine.device());
  whole.slice(here.first - all.first, here.last - all.first).copy_from(mine);
  return whole.reshape(by.value.shape());
}

Sharded::Unit Sharded::unit(const std::vector<Parameter*>& parameters) const {
  std::vector<Home> homes;
  for (const Parameter* parameter : parameters) homes.push_back(home_of(*parameter));
  std::sort(homes.begin(), homes.end());
  homes.erase(std::unique(homes.begin(), homes.end()), homes.end());
  std::vector<Stretch> stretches;
  for (size_t begin = 0, end; begin < homes.size(); begin = end) {
    const auto [bundle, first] = homes[begin];
    for (end = begin + 1; end < homes.size() && homes[end] == Home{bundle, homes[end - 1].place + 1};) ++end;
    stretches.push_back(stretch(shards(bundle), first, homes[end - 1].place + 1));
  }
  return std::make_shared<const std::vector<Stretch>>(std::move(stretches));
}

Sharded::Stretch Sharded::stretch(Shards& shards, int64_t first_place, int64_t last_place) {
  const std::vector<Place>& places = shards.layout().places();
  const Range all = {places[static_cast<size_t>(first_place)].begin,
                     places[static_cast<size_t>(last_place - 1)].range().last};
  const Range mine = common(all, shards.owned());
  Packing own{{}, mine.size()}, whole{{}, all.size()};
  std::vector<const Communicator*> groups;
  if (shards.layout().device() == Device::cpu)
    own.allocate = whole.allocate = [&comm = shards.comm()](size_t bytes) { return comm.allocate_shown(bytes); };
  for (int64_t place = first_place; place < last_place; ++place) {
    const auto& [parameter, begin, size] = places[static_cast<size_t>(place)];
    const Range here = common(mine, {begin, begin + size});
    own.slots.push_back({here.first - mine.first, {here.size()}});
    whole.slots.push_back({begin - all.first, parameter->value.shape()});
    const Communicator* group = parameter->placement ? &parameter->placement->group : nullptr;
    if (group && std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return {&shards, first_place, last_place, shards.rows(all), std::move(own), std::move(whole), std::move(groups)};
}

// While it exists, the unit's parameters are there. For a question, all but the one that it is about are constants.
class Sharded::InUse {
 public:
  InUse(const Sharded& sharded, Tape& tape, const Unit& unit) : sharded_(sharded), tape_(tape), unit_(unit) {
    each_place([&](Shards& shards, int64_t place) {
      require(!shards.in_use[static_cast<size_t>(place)], "sharded: ", shards.parameter(place).name,
              " is in use already, by a unit around this one");
    });
    each_place([&](Shards& shards, int64_t place) { shards.in_use[static_cast<size_t>(place)] = true; });
  }
  ~InUse() {
    each_place([&](Shards& shards, int64_t place) {
      shards.in_use[static_cast<size_t>(place)] = false;
      tape_.stand_in(shards.parameter(place), {});
    });
  }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

  void gather(std::span<const Var> leaves, Site site) {
    for (const Stretch& stretch : *unit_) {
      Shards& shards = *stretch.shards;
      const size_t count = stretch.whole.slots.size();
      const Var mine = pack(leaves.first(count), stretch.mine);
      const Var flat = cast(all_gather_v(mine, stretch.rows, shards.comm(), site), shards.layout().dtype());
      const auto reached = [&sharded = sharded_, &stretch](size_t i) {
        if (!sharded.asked_) stretch.shards->reached[static_cast<size_t>(stretch.first_place) + i] = true;
      };
      const Vars parts = unpack(flat, stretch.whole, reached);
      for (size_t i = 0; i < count; ++i) {
        const int64_t place = stretch.first_place + static_cast<int64_t>(i);
        const Parameter& parameter = shards.parameter(place);
        const auto& asked = sharded_.asked_;
        const bool wanted = !asked || (asked->shards == &shards && asked->place == place);
        Var part = wanted ? parts[i] : derived(parts[i].value(), parts[i]);
        if (!stretch.groups.empty()) part = unpacked(part);
        for (const Communicator* group : stretch.groups) part = spread_as(part, *group, placed_over(*group, parameter));
        tape_.stand_in(parameter, part);
      }
      leaves = leaves.subspan(count);
    }
  }

 private:
  template <class F> void each_place(F f) {
    for (const Stretch& stretch : *unit_)
      for (int64_t place = stretch.first_place; place < stretch.last_place; ++place) f(*stretch.shards, place);
  }

  const Sharded& sharded_;
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
      inputs.push_back(stretch.shards->leaf(*tape, place));
  const auto piece = [=, this, f = std::move(f)](std::span<const Var> all) {
    if (asked_ && began < asked_->leaf && !has(*unit, asked_->shards, asked_->place))
      return Var();  // the answer is complete
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

Layer& Sharded::layer(const std::string& name, Layer& layer) {
  return *units_.emplace_back(std::make_unique<ShardedLayer>(name, layer, *this));
}

Var Sharded::watch(Tape& tape, Parameter& parameter) {
  const auto values = [&parameter](const Var& beside) { return use(beside, parameter) * 1; };
  const Var on_tape = tape.constant(Tensor::zeros({}, parameter.value.dtype(), parameter.value.device()));
  return run(unit({&parameter}), on_tape, values);
}

Tensor Sharded::whole(const Parameter& parameter, Site site) const {
  const auto [bundle, place] = home_of(parameter);
  return shards(bundle).whole(place, site);
}

void Sharded::set(const Parameter& parameter, const Tensor& whole) {
  const auto [bundle, place] = home_of(parameter);
  shards(bundle).set(place, whole);
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
