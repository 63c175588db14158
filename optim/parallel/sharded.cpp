// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/parallel/sharded.h"

#include <algorithm>

#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/tape/record.h"

namespace weft {
namespace {

// An identity op. Parts that were packed together all have one placement; the new node may get another.
Var unpacked(const Var& x);
const Op unpacked_op{"unpacked", {{"", {{2, 3}}, [](auto x) { return unpacked(x[0]); }}}, Algebra::linear};
Var unpacked(const Var& x) {
  return record(unpacked_op, x.value(), from(x, [](const Var& g) { return g; }));
}

Placement placed_over(const Communicator& group, const Parameter& parameter) {
  const bool holds = parameter.sharding && &parameter.sharding->group == &group;
  return holds ? parameter.sharding->placement() : Placement::replicated;
}

bool has(const std::vector<Sharded::ContiguousRun>& unit, const Shards* shards, int64_t place) {
  return std::any_of(unit.begin(), unit.end(),
                     [=](const Sharded::ContiguousRun& run) { return run.has(shards, place); });
}

}  // namespace

Sharded::Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm) {
  for (BundlePlan& plan : plan_bundles("sharded", groups, comm)) add(std::make_unique<Shards>(std::move(plan)));
}

const Tensor& Sharded::gradient_of(const Parameter& parameter) const {
  const auto [bundle, place] = home_of(parameter);
  return shards(bundle).gradients()[shards(bundle).shard(place)];
}

Tensor Sharded::gradient(const Var& loss, const Parameter& wrt) {
  const auto [bundle, place] = home_of(wrt);
  const Shards& home = shards(bundle);
  const Var shard = home.leaf(*loss.tape(), place);
  struct QueryScope {
    std::optional<GradientQuery>& query;
    ~QueryScope() { query.reset(); }
  } const scope{query_};
  query_ = GradientQuery{&home, place, loss.tape()->place_of(shard)};
  const Tensor mine = loss.tape()->gradient(loss, {shard})[0].value();
  const Range all = home.layout().places()[static_cast<size_t>(place)].range(), here = intersection(all, home.owned());
  Tensor whole = Tensor::zeros({all.size()}, mine.dtype(), mine.device());
  whole.slice(here.first - all.first, here.last - all.first).copy_from(mine);
  return whole.reshape(wrt.value.shape());
}

Sharded::Unit Sharded::unit(const std::vector<Parameter*>& parameters) const {
  std::vector<Home> homes;
  for (const Parameter* parameter : parameters) homes.push_back(home_of(*parameter));
  std::sort(homes.begin(), homes.end());
  homes.erase(std::unique(homes.begin(), homes.end()), homes.end());
  std::vector<ContiguousRun> runs;
  for (size_t begin = 0, end; begin < homes.size(); begin = end) {
    const auto [bundle, first] = homes[begin];
    for (end = begin + 1; end < homes.size() && homes[end] == Home{bundle, homes[end - 1].place + 1};) ++end;
    runs.push_back(run_of(shards(bundle), first, homes[end - 1].place + 1));
  }
  return std::make_shared<const std::vector<ContiguousRun>>(std::move(runs));
}

Sharded::ContiguousRun Sharded::run_of(Shards& shards, int64_t first_place, int64_t last_place) {
  const std::vector<Place>& places = shards.layout().places();
  const Range all = {places[static_cast<size_t>(first_place)].begin,
                     places[static_cast<size_t>(last_place - 1)].range().last};
  const Range mine = intersection(all, shards.owned());
  Packing own{{}, mine.size()}, whole{{}, all.size()};
  std::vector<const Communicator*> groups;
  if (shards.layout().device() == Device::cpu)
    own.allocate = whole.allocate = [&comm = shards.comm()](size_t bytes) { return comm.allocate_shown(bytes); };
  for (int64_t place = first_place; place < last_place; ++place) {
    const auto& [parameter, begin, size] = places[static_cast<size_t>(place)];
    const Range here = intersection(mine, {begin, begin + size});
    own.slots.push_back({here.first - mine.first, {here.size()}});
    whole.slots.push_back({begin - all.first, parameter->value.shape()});
    const Communicator* group = parameter->sharding ? &parameter->sharding->group : nullptr;
    if (group && std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return {&shards, first_place, last_place, shards.rows(all), std::move(own), std::move(whole), std::move(groups)};
}

// While it exists, the unit's parameters have values. During a query, all parameters but the queried one are constants.
class Sharded::GatheredScope {
 public:
  GatheredScope(const Sharded& sharded, Tape& tape, const Unit& unit) : sharded_(sharded), tape_(tape), unit_(unit) {
    each_place([&](Shards& shards, int64_t place) {
      require(!shards.in_use[static_cast<size_t>(place)], "sharded: ", shards.parameter(place).name,
              " is in use already, by a unit around this one");
    });
    each_place([&](Shards& shards, int64_t place) { shards.in_use[static_cast<size_t>(place)] = true; });
  }
  ~GatheredScope() {
    each_place([&](Shards& shards, int64_t place) {
      shards.in_use[static_cast<size_t>(place)] = false;
      tape_.substitute(shards.parameter(place), {});
    });
  }
  GatheredScope(const GatheredScope&) = delete;
  GatheredScope& operator=(const GatheredScope&) = delete;

  void gather(std::span<const Var> leaves, Site site) {
    for (const ContiguousRun& run : *unit_) {
      Shards& shards = *run.shards;
      const size_t count = run.whole.slots.size();
      const Var mine = pack(leaves.first(count), run.mine);
      const Var flat = cast(all_gather_v(mine, run.rows, shards.comm(), site), shards.layout().dtype());
      const auto reached = [&sharded = sharded_, &run](size_t i) {
        if (!sharded.query_) run.shards->reached[static_cast<size_t>(run.first_place) + i] = true;
      };
      const Vars parts = unpack(flat, run.whole, reached);
      for (size_t i = 0; i < count; ++i) {
        const int64_t place = run.first_place + static_cast<int64_t>(i);
        const Parameter& parameter = shards.parameter(place);
        const auto& query = sharded_.query_;
        const bool wanted = !query || (query->shards == &shards && query->place == place);
        Var part = wanted ? parts[i] : constant_like(parts[i].value(), parts[i]);
        if (!run.groups.empty()) part = unpacked(part);
        for (const Communicator* group : run.groups)
          part = with_placement(part, *group, placed_over(*group, parameter));
        tape_.substitute(parameter, part);
      }
      leaves = leaves.subspan(count);
    }
  }

 private:
  template <class F> void each_place(F f) {
    for (const ContiguousRun& run : *unit_)
      for (int64_t place = run.first_place; place < run.last_place; ++place) f(*run.shards, place);
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
  const int64_t begin = tape->size();
  for (const ContiguousRun& run : *unit)
    for (int64_t place = run.first_place; place < run.last_place; ++place)
      inputs.push_back(run.shards->leaf(*tape, place));
  const auto piece = [=, this, f = std::move(f)](std::span<const Var> all) {
    if (query_ && begin < query_->leaf && !has(*unit, query_->shards, query_->place))
      return Var();  // the queried gradient is complete
    GatheredScope in_use(*this, *tape, unit);
    in_use.gather(all.subspan(count), site);
    if (!query_) return f(all.first(count));
    // Inputs that were recorded before the shard's leaf do not depend on it.
    Vars later(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
    for (Var& input : later)
      if (tape->place_of(input) < query_->leaf) input = constant_like(input.value(), input);
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
  const auto values = [&parameter](const Var& beside) { return bind(beside, parameter) * 1; };
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
  register_module(layer);
}

Var ShardedLayer::apply(const Var& x, const Pass& pass) {
  const auto call = [&layer = layer_, pass](const Var& x) { return layer(x, pass); };
  return sharded_.run(unit_, x, call, Site::here(name_.c_str()));
}

}  // namespace weft
