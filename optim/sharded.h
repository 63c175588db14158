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
#include <deque>
#include <limits>
#include <optional>

#include "collectives/communicator.h"
#include "engine/nn/module.h"
#include "optim/optimizer.h"
#include "optim/pack.h"

namespace weft {

class Sharded {
 public:
  // Parameters of one dtype and device, equal on all ranks, whose values are given up.
  Sharded(const std::vector<ParameterGroup>& groups, Communicator& comm);
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  // Neighbours in flat memory, which travel together.
  struct Stretch {
    int64_t first_place, last_place;  // the latter is not in it
    Rows rows;                        // elements on each rank
    Packing mine, whole;
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

  // Of this rank's elements of each parameter: hooks are told of parameters of the same names that have just these.
  Gradients& gradients() { return gradients_; }
  const Tensor& gradient_of(const Parameter& parameter) const;  // its part so far; undefined if there is none
  // A question, as Tape::gradient. The gradient is the sum over ranks: each has its own elements of it, and zeros.
  Tensor gradient(const Var& loss, const Parameter& by);
  // As DataParallel::step.
  double step(double rate, double most_norm = std::numeric_limits<double>::infinity());
  void discard();

  // On every rank: all of a parameter's values, and new ones.
  Tensor whole(const Parameter& parameter, Site site = Site::here()) const;
  void set(const Parameter& parameter, const Tensor& whole);

  Optimizer& optimizer() { return optimizer_; }

 private:
  class InUse;
  // While an answer is computed: where its parameter's place is, and where on the tape its shard came to be.
  struct Question {
    int64_t place, leaf;
  };

  Range piece(int64_t place) const;  // of the flat memory: this rank's elements
  int64_t find(const Parameter& parameter) const;
  Rows rows(Range range) const;
  Stretch stretch(int64_t first_place, int64_t last_place) const;
  void agree_on_present();

  Communicator& comm_;
  FlatLayout layout_;
  Range owned_;
  FlatParameters parameters_;
  Optimizer optimizer_;
  std::deque<Parameter> shards_;  // by place: the leaves of tapes; of bf16 parameters the master weights
  ByParameter<int64_t> place_of_shard_;
  FlatMemory gradient_;
  Gradients gradients_;
  std::vector<bool> in_use_, reached_,
      present_;  // by place: in a unit at work; in this step, by a gradient; on any rank
  std::optional<Question> asked_;
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
