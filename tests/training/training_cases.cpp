// SPDX-License-Identifier: Apache-2.0
#include "tests/training/training_cases.h"

#include <algorithm>
#include <cmath>

#include "weft/collectives/placement_conversions.h"
#include "weft/optim/parallel/replicate.h"
#include "weft/optim/parallel/sharded.h"

namespace weft {
namespace {

// The index of rank r's first sample of a step.
int64_t boundary(int64_t samples, int64_t step, int rank, int ranks) {
  if (rank == 0 || rank == ranks) return rank == 0 ? 0 : samples;
  const bool joined = step % 3 != 0 && rank == 1 + step % (ranks - 1);  // begins with the rank before, now empty
  const Random key = {51, static_cast<uint64_t>(step)};
  const double shift = uniform_draw<double>(key, static_cast<uint64_t>(rank)) - 0.5;
  if (joined) return boundary(samples, step, rank - 1, ranks);
  return static_cast<int64_t>((rank + shift) / ranks * static_cast<double>(samples));
}

Weights weights_of(
    const Program& program,
    const std::function<Tensor(const Parameter&)>& value = [](const Parameter& p) { return p.value.clone(); }) {
  Weights weights;
  for (const Parameter* p : program.parameters()) weights.push_back(value(*p));
  for (const Parameter* p : program.buffers()) weights.push_back(p->value.clone());
  return weights;
}

void update(Optimizer& optimizer, Gradients& gradients, const TrainingCase& c) {
  const double scale = std::isinf(c.max_norm) ? 1 : clip(optimizer.norm(gradients), c.max_norm);
  optimizer.step(gradients, c.rate, scale);
  gradients.clear();
}

}  // namespace

Step training_step(int64_t number, Communicator& comm, Gradients& gradients) {
  const int64_t samples = 9 + number * 5 % 7;
  const int64_t first = boundary(samples, number, comm.rank().value, comm.size());
  const int64_t last = boundary(samples, number, comm.rank().value + 1, comm.size());
  return {number,       samples, first,
          last - first, comm,    gradients,
          [](Tape&) {}, [] {},   [](Layer& layer, const Var& x, const Pass& pass) { return layer(x, pass); }};
}

Tensor Step::draws(const Shape& each, int use) const {
  const Random key = {61, static_cast<uint64_t>(number * 8 + use)};
  return Tensor::uniform(each.with_inserted(0, samples), key, -1, 1, DType::f64).slice(first, first + rows);
}

Tensor Step::labels(int64_t classes) const {
  Tensor y({rows}, DType::i64);
  for (int64_t i = 0; i < rows; ++i) y.mutate<int64_t>()[i] = ((first + i) * (first + i) + 3 * number) % classes;
  return y;
}

Weights trained_alone(const TrainingCase& c) {
  Weights result;
  run_ranks(1, [&](Communicator& self) {
    const auto program = c.make(nullptr);
    Optimizer optimizer(c.groups(*program));
    Gradients gradients;
    for (int64_t i = 0; i < training_steps; ++i) {
      program->whole(training_step(i, self, gradients));
      update(optimizer, gradients, c);
    }
    result = weights_of(*program);
  });
  return result;
}

Weights trained(const TrainingCase& c, Communicator& comm, const DataParallel::Options& options) {
  const auto program = c.make(&comm);
  DataParallel training(c.groups(*program), comm, options);
  for (int64_t i = 0; i < training_steps; ++i) {
    Step step = training_step(i, comm, training.gradients());
    step.begin = [&](Tape& tape) { declare_group(tape, comm); };
    step.last = [&] { training.expect_last_pass(); };
    program->step(step);
    training.step(c.rate, c.max_norm);
  }
  return weights_of(*program);
}

Weights trained_by_tape(const TrainingCase& c, Communicator& comm) {
  const auto program = c.make(&comm);
  const std::vector<Parameter*> parameters = program->parameters();
  Optimizer optimizer(c.groups(*program));
  Gradients gradients;
  for (int64_t i = 0; i < training_steps; ++i) {
    Step step = training_step(i, comm, gradients);
    step.begin = [&](Tape& tape) { replicate(tape, parameters, comm); };
    program->step(step);
    update(optimizer, gradients, c);
  }
  return weights_of(*program);
}

Weights trained_in_shards(const TrainingCase& c, Communicator& comm) {
  const auto program = c.make(&comm);
  Sharded training(c.groups(*program), comm);
  for (int64_t i = 0; i < training_steps; ++i) {
    Step step = training_step(i, comm, training.gradients());
    step.begin = [&](Tape& tape) { declare_group(tape, comm); };
    step.through = [&](Layer& layer, const Var& x, const Pass& pass) {
      return training.run(training.unit(layer.parameters()), x,
                          [&layer, pass](const Var& x) { return layer(x, pass); });
    };
    program->step(step);
    training.step(c.rate, c.max_norm);
  }
  return weights_of(*program, [&](const Parameter& p) { return training.whole(p); });
}

double difference(const Weights& actual, const Weights& expected) {
  double result = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<double> a = actual[i].values(), b = expected[i].values();
    double most = 0, largest = 0;
    for (size_t k = 0; k < b.size(); ++k) {
      most = std::max(most, std::abs(a[k] - b[k]));
      largest = std::max(largest, std::abs(b[k]));
      if (!std::isfinite(a[k])) return std::numeric_limits<double>::infinity();
    }
    if (most > 0) result = std::max(result, most / largest);
  }
  return result;
}

double worst(double mine, Communicator& comm) {
  return comm.all_reduce(Tensor::full({}, mine, DType::f64), ReduceOp::maximum).item();
}

}  // namespace weft
