// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stage 3 of data_parallel.h: the parameters are divided among the ranks, too. Each rank keeps its part of the flat
// memory, part(rank, ranks) of the layout, with the gradients and the optimizer's state for it. A unit of parameters,
// such as a layer, is gathered only while it runs:
//
//   Sharded training({{network.parameters(), AdamW{}}}, comm);
//   const Sharded::Unit unit = training.unit(layer.parameters());
//   ...
//   const Var y = training.run(unit, tape.constant(x), [&](const Var& x) { return layer(x, pass); });
//   ...
//   tape.backward(loss, training.gradients());     any number of times; each rank's loss is its share of the whole
//   training.step(rate);
//
// A unit runs as a checkpoint: forward gathers its parameters, keeps only the inputs, and releases the parameters.
// Backward gathers them again, recomputes the unit, and returns the gradients to their ranks by the adjoint, a
// reduce_scatter. The rules of checkpoints apply: random layers draw by key, and side effects that must happen once
// check Tape::recomputing(). A unit is a collective: every rank must run the same units in the same order.
//
// If a step has one backward, which runs each unit once, results are bit-identical to the other stages. Otherwise
// passes and ranks are summed in another order. Outside of its unit a parameter has a shape but no values, and using it
// is an Error. whole() is for checkpoints, and for uses after the end of this object.
#include <optional>

#include "weft/optim/pack.h"
#include "weft/optim/parallel/shards.h"
#include "weft/optim/parallel/trainer.h"

namespace weft {

class Sharded final : public Trainer {
 public:
  // Parameters must be equal on all ranks, except those of layers that a group of ranks divides. Their values are
  // released.
  Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm);

  // Neighbours in flat memory, which one collective gathers.
  struct ContiguousRun {
    Shards* shards;
    int64_t first_place, last_place;  // last_place is the end, which the run does not include
    Rows rows;                        // elements on each rank
    Packing mine, whole;
    std::vector<const Communicator*> groups;  // the groups that divide some of the parameters
    bool has(const Shards* shards, int64_t place) const {
      return this->shards == shards && first_place <= place && place < last_place;
    }
  };
  using Unit = std::shared_ptr<const std::vector<ContiguousRun>>;  // shared with tapes
  // Units may share parameters. If a unit's parameters are neighbours in the groups, one collective gathers them.
  Unit unit(const std::vector<Parameter*>& parameters) const;

  // Returns f(inputs); f may use the unit's parameters. f must return the same values if it is called again, must not
  // keep any Var that it computes, and must live as long as the tape, as must this object. At least one input must be
  // on a tape, which is paused if no gradients are wanted.
  using Function = PooledFunction<Var(std::span<const Var> inputs)>;
  Var run(const Unit& unit, Vars inputs, Function f, Site site = Site::here());
  Var run(const Unit& unit, const Var& x, PooledFunction<Var(const Var& x)> f, Site site = Site::here());

  // Gradients are those of this rank's elements of each parameter. Hooks get parameters of the same names that consist
  // of these elements.
  const Tensor& gradient_of(const Parameter& parameter) const;  // this rank's part so far, or undefined
  // The gradient is the sum of the results over ranks: each rank has its own elements, and zeros elsewhere.
  Tensor gradient(const Var& loss, const Parameter& wrt) override;

  Layer& layer(const std::string& name, Layer& layer) override;
  Var watch(Tape& tape, Parameter& parameter) override;
  Tensor whole(const Parameter& parameter) const override { return whole(parameter, Site::here()); }
  Tensor whole(const Parameter& parameter, Site site) const;
  void set(const Parameter& parameter, const Tensor& whole) override;

 private:
  class GatheredScope;
  // Set while gradient() runs: the place of its parameter, and the position of the shard's leaf on the tape.
  struct GradientQuery {
    const Shards* shards;
    int64_t place, leaf;
  };
  Shards& shards(size_t bundle) const { return static_cast<Shards&>(this->bundle(bundle)); }
  static ContiguousRun run_of(Shards& shards, int64_t first_place, int64_t last_place);

  std::optional<GradientQuery> query_;
  std::vector<std::unique_ptr<Layer>> units_;  // the results of layer()
};

// A layer that runs as a unit.
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
