#pragma once
// Stage 3 of data_parallel.h: the parameters, too, are divided among the ranks. Each keeps its part of their flat
// memory, part(rank, ranks) of the layout, and the gradients and the optimizer's state for that. A unit of them, such
// as a layer, is whole only while it is at work:
//
//   Sharded training({{network.parameters(), AdamW{}}}, comm);
//   const Sharded::Unit unit = training.unit(layer.parameters());
//   ...
//   const Var y = training.run(unit, tape.constant(x), [&](const Var& x) { return layer(x, pass); });
//   ...
//   tape.backward(loss, training.gradients());     any number of times; each rank's loss is its share of the whole
//   training.step(rate);
//
// A unit runs as a checkpoint does: forward gathers its parameters, keeps nothing but the inputs, and lets go of them;
// backward gathers them again, computes the unit again, and brings the gradients home by the adjoint, a reduce_scatter.
// So what holds for a checkpoint holds here: random layers draw by key, and what must happen once asks
// Tape::recomputing(). A unit is a collective: every rank runs the same ones in the same order.
//
// With one backward for each step, and each unit in it once, all bits are those of the other stages; otherwise sums
// over passes are sums of sums over ranks, in another order. Outside of its unit a parameter has a shape and no values:
// to use it there is an Error. whole() is for checkpoints, and for what is to go on without this object.
#include <optional>

#include "optim/pack.h"
#include "optim/shards.h"
#include "optim/trainer.h"

namespace weft {

class Sharded final : public Trainer {
 public:
  // Parameters equal on all ranks, but where a layer's placement says otherwise; their values are given up.
  Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm);

  // Neighbours in flat memory, which travel together.
  struct Stretch {
    Shards* shards;
    int64_t first_place, last_place;  // the latter is not in it
    Rows rows;                        // elements on each rank
    Packing mine, whole;
    std::vector<const Communicator*> groups;  // that hold some of them
    bool has(const Shards* shards, int64_t place) const {
      return this->shards == shards && first_place <= place && place < last_place;
    }
  };
  using Unit = std::shared_ptr<const std::vector<Stretch>>;  // shared with tapes
  // Units may have parameters in common. One whose parameters are neighbours in the groups is gathered at once.
  Unit unit(const std::vector<Parameter*>& parameters) const;

  // f of the inputs, in which the unit's parameters may be used. It must give the same again, keep no Var of what it
  // computes, and live as long as the tape, as this object must. One input at least is on a tape: a paused one where no
  // gradients are wanted.
  using Function = PooledFunction<Var(std::span<const Var> inputs)>;
  Var run(const Unit& unit, Vars inputs, Function f, Site site = Site::here());
  Var run(const Unit& unit, const Var& x, PooledFunction<Var(const Var& x)> f, Site site = Site::here());

  // Gradients are of this rank's elements of each parameter: hooks are told of parameters of the same names that have
  // just these.
  const Tensor& gradient_of(const Parameter& parameter) const;  // its part so far; undefined if there is none
  // The gradient is the sum over ranks: each has its own elements of it, and zeros.
  Tensor gradient(const Var& loss, const Parameter& by) override;

  Layer& layer(const std::string& name, Layer& layer) override;
  Var watch(Tape& tape, Parameter& parameter) override;
  Tensor whole(const Parameter& parameter) const override { return whole(parameter, Site::here()); }
  Tensor whole(const Parameter& parameter, Site site) const;
  void set(const Parameter& parameter, const Tensor& whole) override;

 private:
  class InUse;
  // While an answer is computed: where its parameter's place is, and where on the tape its shard came to be.
  struct Question {
    const Shards* shards;
    int64_t place, leaf;
  };
  Shards& shards(size_t bundle) const { return static_cast<Shards&>(this->bundle(bundle)); }
  static Stretch stretch(Shards& shards, int64_t first_place, int64_t last_place);

  std::optional<Question> asked_;
  std::vector<std::unique_ptr<Layer>> units_;  // of layer()
};

// A layer as a unit.
class ShardedLayer final : public Layer {
 public:
  ShardedLayer(std::string name, Layer& layer, Sharded& sharded);

 private:
  Var apply(const Var& x, const Pass& pass) override;

  const std::string name_;
  Layer& layer_;
  Sharded& sharded_;
  const Sharded::Unit unit_;
};

}  // namespace weft
