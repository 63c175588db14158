// SPDX-License-Identifier: Apache-2.0
// Training of tensor-parallel layers over one group in a batch sharded over another, against one process.
#include <map>
#include <numeric>

#include "tests/support/on_ranks.h"
#include "weft/collectives/nn/parallel_linear.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/sharding.h"
#include "weft/collectives/share.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/accumulate/exact_gradients.h"
#include "weft/optim/parallel/make_trainer.h"
#include "weft/optim/parallel/replicate.h"
#include "weft/optim/state.h"

using namespace weft;

namespace {

const Init init = {.key = {11}, .dtype = DType::f64};
const Activation tanh_between = {.op = Unary::Tanh};
constexpr int steps = 7;
constexpr double infinity = std::numeric_limits<double>::infinity();

// Ranks in a grid: samples are sharded along its rows, features along its columns.
struct Grid {
  Communicator& world;
  std::unique_ptr<Communicator> samples, features;

  Grid(Communicator& world, int columns)
      : world(world), samples(world.split(number(world) % columns)), features(world.split(number(world) / columns)) {}
};
using Grids = std::vector<std::pair<int, int>>;
template <class F> void on_grids(const Grids& grids, F f) {
  for (const auto& [rows, columns] : grids) {
    INFO(rows << " times " << columns << " ranks");
    CHECK_NOTHROW(run_ranks(rows * columns, [&, columns = columns](Communicator& world) { f(Grid(world, columns)); }));
  }
}

// The samples of a step: each rank r along the rows has its own, some none.
constexpr int64_t in = 3, hidden = 7, out = 2;
int64_t rows_of(int r) { return std::array{3, 0, 2}[static_cast<size_t>(r % 3)]; }
Tensor part(int r, int step, int64_t width, int use) { return data_of(r, {rows_of(r), width}, 2 * step + use); }
Tensor whole(int ranks, int step, int64_t width, int use) {
  std::vector<Var> parts;
  for (int r = 0; r < ranks; ++r) parts.push_back(part(r, step, width, use));
  return concat(parts, 0).value();
}
double samples_of(int ranks) {
  double all = 0;
  for (int r = 0; r < ranks; ++r) all += static_cast<double>(rows_of(r));
  return all;
}

// Two tensor-parallel layers between two replicated ones; and the same for one process.
template <class Pair> struct Network : Module {
  Linear first{"first", in, in, init, tanh_between};
  Pair mlp;
  LayerNorm norm{"norm", hidden, init};
  Linear last{"last", hidden, out, init};
  template <class... Group>
  explicit Network(Group&... group) : mlp("mlp", in, hidden, hidden, init, group..., tanh_between) {
    register_module(first);
    register_module(mlp);
    register_module(norm);
    register_module(last);
  }
};
struct Whole : Layer {
  Mlp mlp;
  Whole(const std::string& name, int64_t in, int64_t hidden, int64_t out, const Init& init, Activation between)
      : mlp(name, {in, hidden, out}, init, between) {
    register_module(mlp);
  }
  Var apply(const Var& x, const Pass& pass) override { return mlp(x, pass); }
};

struct Rules {
  std::string name;
  Rule of_matrices, of_others;
  double max_norm = infinity;
};
const std::vector<Rules> all_rules = {{"sgd, clipped", Sgd{.momentum = 0.9}, Sgd{.momentum = 0.9}, 0.05},
                                      {"adamw, clipped", AdamW{}, AdamW{.weight_decay = 0}, 0.01},
                                      {"lamb", Lamb{}, Lamb{}},
                                      {"lars", Lars{.weight_decay = 0.1, .trust = 0.1}, Lars{.adapt = false}},
                                      {"adafactor", Adafactor{}, Adafactor{}},
                                      {"muon and adamw, clipped", Muon{}, AdamW{}, 0.05}};
std::vector<ParameterGroup> groups(const std::vector<Parameter*>& parameters, const Rules& rules) {
  std::vector<ParameterGroup> groups = {{{}, rules.of_matrices}, {{}, rules.of_others, 0.5}};
  for (Parameter* p : parameters) groups[p->value.shape().rank() < 2].parameters.push_back(p);
  return groups;
}
// Calls f(rules, stage, grids): every rule at every stage, and one stage on all grids.
template <class F> void in_every_way(F f) {
  for (size_t i = 0; i < all_rules.size(); ++i)
    for (const int stage : {0, 1, 2, 3}) {
      INFO(all_rules[i].name << ", stage " << stage);
      f(all_rules[i], stage,
        i % 4 == static_cast<size_t>(stage) ? Grids{{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {3, 2}, {2, 3}}
                                            : Grids{{2, 2}});
    }
}
double rate_at(int step) { return 0.05 / (1 + step); }

// Trains on one process with all samples and features. Returns the norms.
template <class Loss>
std::vector<double> train_whole(const std::vector<Parameter*>& parameters, const Rules& rules, const Loss& loss) {
  Optimizer optimizer(groups(parameters, rules));
  std::vector<double> norms;
  for (int step = 0; step < steps; ++step) {
    Tape tape;
    Gradients gradients;
    tape.backward(loss(tape, step), gradients);
    norms.push_back(optimizer.norm(gradients));
    const double scale = std::isinf(rules.max_norm) ? 1 : clip(norms.back(), rules.max_norm);
    optimizer.step(gradients, rate_at(step), scale);
  }
  return norms;
}
template <class Loss>
void train(Trainer& training, const Rules& rules, const std::vector<double>& norms, Communicator& world,
           const Loss& loss, int first = 0, int last = steps) {
  for (int step = first; step < last; ++step) {
    Tape tape;
    tape.backward(loss(tape, step), training.gradients());
    const Tensor norm = scalar(training.step(rate_at(step), rules.max_norm));
    if (std::isinf(rules.max_norm)) continue;
    expect(norm.item() > 2 * rules.max_norm, "clipping is at work");
    expect_close(norm, scalar(norms[static_cast<size_t>(step)]));
    expect_same_bits(norm, world.broadcast(norm, {0}));
  }
}
// Expects each rank to have its slice of the single process's weights, and replicated weights to be bit-identical.
void expect_slices(const Trainer& training, const std::vector<Parameter*>& mine, const std::vector<Parameter*>& all,
                   Communicator& world) {
  for (size_t i = 0; i < all.size(); ++i) {
    expect(mine[i]->name == all[i]->name, mine[i]->name + " is not " + all[i]->name);
    const Tensor value = training.whole(*mine[i]);
    expect_close(value, is_divided(*mine[i]) ? own_slice(all[i]->value, *mine[i]->sharding) : all[i]->value);
    if (!is_divided(*mine[i])) expect_same_bits(value, world.broadcast(value, {0}));
  }
}

Var mean_square(const Var& y, const Var& target, double count) { return sum(square(y - target)) / count; }

// The network on a grid of ranks, and one process that trains all of it.
class NetworkTraining {
 public:
  // With `shares`, the loss says that it is a share over the ranks with other samples.
  NetworkTraining(const Grid& grid, const Rules& rules, int stage, bool shares = false)
      : grid_(grid),
        rules_(rules),
        shares_(shares),
        divided_(*grid.features),
        trainer_(make_trainer(groups(divided_.parameters(), rules), grid.world, {.stage = stage})),
        state_(grid.world) {
    norms_ = train_whole(single_.parameters(), rules, [&](Tape& tape, int step) {
      const Var x = tape.constant(whole(ranks_, step, in, 0)), target = tape.constant(whole(ranks_, step, out, 1));
      return mean_square(single_.last(single_.norm(single_.mlp(single_.first(x)))), target, samples_of(ranks_));
    });
    state_.add(*trainer_);
  }

  void train(int first_step, int end) {
    const auto loss_at = [&](Tape& tape, int step) { return loss(tape, step); };
    ::train(*trainer_, rules_, norms_, grid_.world, loss_at, first_step, end);
  }
  void expect_slices() { ::expect_slices(*trainer_, divided_.parameters(), of_one_process(), grid_.world); }
  TrainingState& state() { return state_; }
  std::vector<Parameter*> of_one_process() { return single_.parameters(); }

 private:
  Var loss(Tape& tape, int step) {
    declare_group(tape, grid_.world);
    const auto mine = [&](int64_t width, int use) {
      return with_placement(tape.constant(part(number(*grid_.samples), step, width, use)), *grid_.features,
                            Placement::constant);
    };
    const Var y = vary(mlp_(first_(mine(in, 0))), *grid_.features);
    const Var outputs = last_(norm_(y)), targets = mine(out, 1);
    const double samples = samples_of(ranks_);
    if (!shares_) return mean_square(outputs, targets, samples);
    return share(sum(square(outputs - targets)), static_cast<int64_t>(samples), *grid_.samples);
  }

  const Grid& grid_;
  const Rules& rules_;
  const bool shares_;
  const int ranks_ = grid_.samples->size();
  Network<Whole> single_;
  std::vector<double> norms_;
  Network<ParallelMlp> divided_;
  std::unique_ptr<Trainer> trainer_;
  Layer &first_ = trainer_->layer("first", divided_.first), &mlp_ = trainer_->layer("mlp", divided_.mlp),
        &norm_ = trainer_->layer("norm", divided_.norm), &last_ = trainer_->layer("last", divided_.last);
  TrainingState state_;
};

}  // namespace

TEST_CASE("tensor-parallel layers in a data-parallel batch train like one process", "[norms]") {
  in_every_way([](const Rules& rules, int stage, const Grids& grids) {
    on_grids(grids, [&](const Grid& grid) {
      const int ranks = grid.samples->size();
      Mlp single("mlp", {in, hidden, out}, init, tanh_between);
      ParallelMlp divided("mlp", in, hidden, out, init, *grid.features, tanh_between);
      const auto norms = train_whole(single.parameters(), rules, [&](Tape& tape, int step) {
        const Var x = tape.constant(whole(ranks, step, in, 0)), target = tape.constant(whole(ranks, step, out, 1));
        return mean_square(single(x), target, samples_of(ranks));
      });
      const auto training = make_trainer(groups(divided.parameters(), rules), *grid.samples, {.stage = stage});
      Layer& layer = training->layer("mlp", divided);
      train(*training, rules, norms, grid.world, [&](Tape& tape, int step) {
        const auto mine = [&](int64_t width, int use) {
          return with_placement(tape.constant(part(number(*grid.samples), step, width, use)), *grid.features,
                                Placement::constant);
        };
        return mean_square(layer(mine(in, 0)), mine(out, 1), samples_of(ranks));
      });
      expect_slices(*training, divided.parameters(), single.parameters(), grid.world);
    });
  });
}

TEST_CASE("tensor-parallel and other layers train together over a grid of ranks, at any stage", "[norms]") {
  in_every_way([](const Rules& rules, int stage, const Grids& grids) {
    on_grids(grids, [&](const Grid& grid) {
      NetworkTraining training(grid, rules, stage);
      training.train(0, steps);
      training.expect_slices();
    });
  });
}

TEST_CASE("layers that a group divides train at any stage if the loss is a share over the other axis of the grid") {
  for (const int stage : {0, 1, 2, 3}) {
    INFO("stage " << stage);
    on_grids({{2, 2}, {3, 2}}, [&](const Grid& grid) {
      NetworkTraining training(grid, all_rules[1], stage, true);
      training.train(0, steps);
      training.expect_slices();
    });
  }
}

TEST_CASE("a checkpoint of a grid of ranks is complete, and resumes on another grid and at another stage", "[norms]") {
  struct Way {
    std::pair<int, int> grid;
    int stage;
  };
  constexpr int middle = 4;
  for (const Rules& rules : all_rules)
    for (const auto& [before, after] : std::initializer_list<std::pair<Way, Way>>{{{{2, 2}, 0}, {{2, 3}, 1}},
                                                                                  {{{2, 3}, 1}, {{2, 1}, 2}},
                                                                                  {{{2, 3}, 3}, {{2, 2}, 0}},
                                                                                  {{{2, 1}, 2}, {{2, 2}, 3}},
                                                                                  {{{2, 2}, 3}, {{2, 3}, 3}}}) {
      INFO(rules.name << " from stage " << before.stage << " to " << after.stage);
      std::map<std::string, Tensor> saved;
      on_grids({before.grid}, [&, stage = before.stage](const Grid& grid) {
        NetworkTraining training(grid, rules, stage);
        training.train(0, middle);
        training.state().save([&](const TensorSource& get) {
          for (size_t i = 0; i < training.state().tensors().size(); ++i) {
            const auto& [name, dtype, shape] = training.state().tensors()[i];
            saved[name] = get(i).clone();
            expect(saved[name].shape() == shape && saved[name].dtype() == dtype, name + " as it was announced");
          }
        });
        for (const Parameter* p : training.of_one_process())
          if (number(grid.world) == 0) expect(saved.at(p->name).shape() == p->value.shape(), p->name + " is whole");
      });
      on_grids({after.grid}, [&, stage = after.stage](const Grid& grid) {
        NetworkTraining training(grid, rules, stage);
        training.state().load([&](const TensorSink& put) -> Metadata {
          for (size_t i = 0; i < training.state().tensors().size(); ++i)
            put(i, saved.at(training.state().tensors()[i].name));
          return {};
        });
        training.train(middle, steps);
        training.expect_slices();
      });
    }
}

TEST_CASE("an optimizer without a trainer handles tensor-parallel layers", "[norms]") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    Mlp single("mlp", {in, hidden, out}, init, tanh_between);
    ParallelMlp divided("mlp", in, hidden, out, init, comm, tanh_between);
    const Rules rules = {"", Lamb{}, Lamb{}, 0.01};
    Optimizer whole(groups(single.parameters(), rules)), mine(groups(divided.parameters(), rules));
    for (int step = 0; step < steps; ++step) {
      Tape one, tape;
      Gradients all, own;
      const Tensor data = data_of(0, {4, in}, step);
      one.backward(sum(square(single(one.constant(data)))), all);
      tape.backward(sum(square(divided(with_placement(tape.constant(data), comm, Placement::constant)))), own);
      const double norm = whole.norm(all), same = mine.norm(own);
      expect_close(scalar(same), scalar(norm));
      whole.step(all, 0.1, clip(norm, 0.01));
      mine.step(own, 0.1, clip(same, 0.01));
    }
    for (size_t i = 0; i < 4; ++i) {
      const Parameter &p = *divided.parameters()[i], &q = *single.parameters()[i];
      expect_close(p.value, is_divided(p) ? own_slice(q.value, *p.sharding) : q.value);
    }
  });
}

TEST_CASE("ranks with slices of different sizes divide whole-matrix optimizer steps alike", "[norms]") {
  // The slices of the first weight take 10 and 11 blocks of flat memory, so a cut in the middle would hit different
  // matrices.
  struct Matrices {
    Parameter uneven{"uneven", data_of(0, {600, 35}, 1)}, even{"even", data_of(0, {100, 34}, 2)},
        everyones{"everyones", data_of(0, {100, 100}, 3)};
    std::vector<Parameter*> all() { return {&uneven, &even, &everyones}; }
  };
  on_grids({{2, 2}}, [](const Grid& grid) {
    Matrices whole, mine;
    for (Parameter* p : {&mine.uneven, &mine.even}) {
      const int64_t features = p->value.shape()[1];
      p->sharding = divided(*grid.features, 1, {features / 2, features - features / 2});
      p->value = own_slice(p->value, *p->sharding).clone();
    }
    mine.everyones.sharding = invariant(*grid.features);
    Optimizer optimizer(whole.all(), Muon{});
    DataParallel training({{mine.all(), Muon{}}}, *grid.samples, {.stage = 1});
    Gradients gradients;
    for (size_t i = 0; i < 3; ++i) {
      const auto part = [&](int rank) { return data_of(rank, whole.all()[i]->value.shape(), 4); };
      const Parameter& p = *mine.all()[i];
      const Tensor own = part(number(*grid.samples));
      training.gradients().add(p, is_divided(p) ? own_slice(own, *p.sharding).clone() : own);
      gradients.add(*whole.all()[i], (Var(part(0)) + part(1)).value());
    }
    optimizer.step(gradients, 0.1);
    training.step(0.1);
    expect_slices(training, mine.all(), whole.all(), grid.world);
    grid.world.barrier();
  });
}

TEST_CASE("a sharded parameter has its placement over the group that holds it") {
  on_grids({{2, 2}}, [](const Grid& grid) {
    Parameter slice("slice", data_of(number(*grid.features), {4, 3})), same("same", data_of(0, {4, 3})),
        free("free", same.value);
    slice.sharding = divided(*grid.features, 1, {3, 3});
    same.sharding = invariant(*grid.features);
    const auto training = make_trainer({{{&slice, &same, &free}, Sgd{}}}, *grid.samples, {.stage = 3});
    Tape tape;
    declare_group(tape, *grid.features);
    const auto placement = [&](Parameter& parameter) {
      return training->watch(tape, parameter).placements().in(tape.find_group(*grid.features->partition()));
    };
    expect(placement(slice) == Placement::varying, "a slice");
    expect(placement(same) == Placement::invariant, "equal on all ranks that hold it");
    expect(placement(free) == Placement::replicated, "of no group");
  });
}

TEST_CASE("a gradient summed over the wrong group of ranks is refused at the first backward", "[norms]") {
  on_grids({{1, 2}, {2, 2}, {2, 3}}, [](const Grid& grid) {
    const Communicator& features = *grid.features;
    const Tensor x = data_of(0, {2, 4}, 1);
    const auto refused = [&](Communicator& over, Parameter& p, Placement placement,
                             std::initializer_list<const char*> said) {
      for (const int stage : {0, 1, 2}) {
        Parameter parameter(p.name, p.value.clone());
        parameter.sharding = p.sharding;
        const auto training = make_trainer({{{&parameter}, Sgd{}}}, over, {.stage = stage});
        Tape tape;
        declare_group(tape, features);
        const auto backward = [&] {
          const Var w = with_placement(training->watch(tape, parameter), features, placement);
          const Var y = matmul(with_placement(tape.constant(x), features, Placement::constant), w);
          tape.backward(sum(square(y)), training->gradients());
        };
        if (said.size() == 0)
          backward();
        else
          expect_refusal(backward, said);
      }
    };
    Parameter same("w", data_of(0, {4, 3})), own("w", data_of(number(features), {4, 3})), known("w", own.value);
    known.sharding = divided(*grid.features, 1, Rows(static_cast<size_t>(features.size()), 3));
    // Used as Replicated, its gradient is Partial over the features' ranks; used as Invariant, each rank has all of it.
    refused(*grid.samples, same, Placement::replicated,
            {"has a part of that of w", "train it over all of these ranks"});
    refused(*grid.samples, same, Placement::invariant, {});
    refused(grid.world, same, Placement::replicated, {});
    refused(grid.world, same, Placement::invariant, {"that of w is Invariant", "invariant(...)"});
    refused(*grid.samples, own, Placement::varying, {"w is a slice of each of the ranks", "does not say so"});
    refused(*grid.samples, known, Placement::varying, {});
    refused(grid.world, known, Placement::varying, {});
    expect_refusal([&] { DataParallel({{{&own}, Sgd{}}}, grid.world); }, {"'w' should be equal on all ranks"});
    Parameter wrong("w", own.value);
    wrong.sharding = invariant(*grid.features);
    expect_refusal([&] { DataParallel({{{&wrong}, Sgd{}}}, *grid.samples); }, {"'w' should be equal on all ranks"});
    Tape tape;
    expect_refusal([&] { replicate(tape, {&known}, grid.world); },
                   {"replicate: w is held by a group among these ranks"});
    expect_refusal([&] { ExactGradients({&known}, grid.world); }, {"ExactGradients: w is held by a group of ranks"});
    expect_refusal([&] { divided(*grid.features, 1, {3}); }, {"divided: 1 extents along axis 1"});
  });
}

TEST_CASE("tensor-parallel slices can be empty if there are more ranks than features", "[norms]") {
  on_ranks({5}, [](Communicator& comm) {
    constexpr int64_t few = 3;
    for (const Rules& rules : all_rules) {
      Mlp whole("mlp", {in, few, out}, init, tanh_between);
      ParallelMlp divided("mlp", in, few, out, init, comm, tanh_between);
      const auto norms = train_whole(whole.parameters(), rules, [&](Tape& tape, int step) {
        return sum(square(whole(tape.constant(data_of(0, {4, in}, step)))));
      });
      const auto self = comm.split(number(comm));
      const auto training = make_trainer(groups(divided.parameters(), rules), *self, {.stage = 1});
      train(*training, rules, norms, comm, [&](Tape& tape, int step) {
        return sum(
            square(divided(with_placement(tape.constant(data_of(0, {4, in}, step)), comm, Placement::constant))));
      });
      expect_slices(*training, divided.parameters(), whole.parameters(), comm);
    }
  });
}
