// SPDX-License-Identifier: Apache-2.0
// The programs of tests/training/training_cases.h.
#include <algorithm>

#include "tests/support/two_towers.h"
#include "tests/training/training_cases.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {
namespace {

constexpr Init init = {.key = {31}, .dtype = DType::f64};
constexpr Activation tanh_activation = {.op = Unary::Tanh};

Var inputs(Tape& tape, const Step& step, const Shape& each) {
  step.begin(tape);
  return tape.constant(step.draws(each));
}
Var classified(const Var& logits, const Step& step) {
  return share(sum(cross_entropy(logits, constant_like(step.labels(logits.shape()[1]), logits))), step.samples,
               step.comm);
}
Var squared_error(const Var& x, const Var& target, const Step& step) {
  return share(sum(square(x - target)), step.samples, step.comm);
}

struct Classifier final : Program {
  Mlp network{"network", {12, 64, 96, 5}, init, tanh_activation};
  Classifier() { register_module(network); }
  void step(const Step& step) override {
    Tape tape;
    const Var loss = classified(step.through(network, inputs(tape, step, {12}), {}), step);
    step.last();
    tape.backward(loss, step.gradients);
  }
};

struct ConvNet final : Program {
  Conv2d first{"first", 2, 6, {3, 3}, init, {}, {}, Bias::no}, second{"second", 6, 6, {3, 3}, init, {.stride = {2, 2}}};
  const std::unique_ptr<BatchNorm> norm;
  Linear out{"out", 6, 4, init};
  explicit ConvNet(Communicator* group)
      : norm(group ? std::make_unique<DistributedBatchNorm>("norm", 6, init, *group)
                   : std::make_unique<BatchNorm>("norm", 6, init)) {
    register_module(first);
    register_module(*norm);
    register_module(second);
    register_module(out);
  }
  void step(const Step& step) override {
    Tape tape;
    const Var images = inputs(tape, step, {7, 7, 2}),
              h = step.through(*norm, step.through(first, images, {}), {.training = true});
    const Var pooled = mean(mean(tanh(step.through(second, tanh(h), {})), 1), 1);
    const Var loss = classified(step.through(out, pooled, {}), step);
    step.last();
    tape.backward(loss, step.gradients);
  }
};

// Each sample belongs to an expert, and a rank uses only those of its own samples, with a backward pass for each. One
// expert is used in every other step, and one never.
struct Experts final : Program {
  static constexpr int64_t count = 5;
  Linear trunk{"trunk", 6, 8, init, tanh_activation};
  std::vector<std::unique_ptr<Linear>> experts;
  Experts() {
    register_module(trunk);
    for (int64_t e = 0; e < count; ++e) {
      experts.push_back(std::make_unique<Linear>("expert." + std::to_string(e), 8, 3, init));
      register_module(*experts.back());
    }
  }
  static int64_t expert_of(int64_t sample, const Step& step) {
    return std::min<int64_t>(sample * 4 / step.samples, step.number % 2 == 0 ? 3 : 2);
  }
  // This rank's rows that belong to an expert.
  Var loss(const Var& features, int64_t expert, const Step& step) {
    int64_t begin = 0, end = step.rows;
    while (begin < end && expert_of(step.first + begin, step) < expert) ++begin;
    while (begin < end && expert_of(step.first + end - 1, step) > expert) --end;
    if (begin == end) return {};
    const Var logits = (*experts[static_cast<size_t>(expert)])(slice(features, 0, begin, end));
    const Var labels = constant_like(step.labels(3).slice(begin, end), features);
    return share(sum(cross_entropy(logits, labels)), step.samples, step.comm);
  }
  void step(const Step& step) override {
    for (int64_t e = 0; e < count; ++e) {
      Tape tape;
      const Var mine = loss(trunk(inputs(tape, step, {6})), e, step);
      if (!mine.defined()) continue;
      if (e == 1) step.last();  // some ranks never get here, and some continue
      tape.backward(mine, step.gradients);
    }
  }
  void whole(const Step& step) override {
    Tape tape;
    const Var features = trunk(inputs(tape, step, {6}));
    Var total;
    for (int64_t e = 0; e < count; ++e)
      if (const Var term = loss(features, e, step); term.defined()) total = total.defined() ? total + term : term;
    tape.backward(total, step.gradients);
  }
};

struct TwoLosses final : Program {
  Linear trunk{"trunk", 6, 40, init, tanh_activation}, classes{"classes", 40, 4, init}, values{"values", 40, 2, init};
  TwoLosses() {
    register_module(trunk);
    register_module(classes);
    register_module(values);
  }
  std::array<Var, 2> losses(Tape& tape, const Step& step) {
    const Var features = step.through(trunk, inputs(tape, step, {6}), {});
    return {classified(step.through(classes, features, {}), step),
            squared_error(step.through(values, features, {}), tape.constant(step.draws({2}, 1)), step)};
  }
  void step(const Step& step) override {
    Tape tape;
    const auto [a, b] = losses(tape, step);
    tape.backward(a, step.gradients, Keep::tape);
    step.last();
    tape.backward(b, step.gradients);
  }
  void whole(const Step& step) override {
    Tape tape;
    const auto [a, b] = losses(tape, step);
    tape.backward(a + b, step.gradients);
  }
};

// As in VQGAN, losses are balanced by the global gradients of the last layer that they share.
struct AdaptiveWeight final : Program {
  Linear encoder{"encoder", 6, 8, init, tanh_activation}, decoder{"decoder", 8, 6, init};
  Linear critic{"critic", 6, 1, init, tanh_activation};
  AdaptiveWeight() {
    register_module(encoder);
    register_module(decoder);
    register_module(critic);
  }
  void step(const Step& step) override {
    Tape tape;
    const Var x = inputs(tape, step, {6}), y = decoder(encoder(x));
    const Var error = squared_error(y, x, step), judged = share(sum(critic(y)), step.samples, step.comm);
    const auto size = [&](const Var& loss) {
      const Tensor mine = tape.gradient(loss, {tape.watch(decoder.weight)})[0].value();
      return norm(step.comm.all_reduce(mine)).value().item();
    };
    const double weight = size(error) / (size(judged) + 1e-4);
    step.last();
    tape.backward(error - judged * weight, step.gradients);
  }
};

// Three micro-batches of uneven rows, some empty. One layer is used by every fifth sample only.
struct Accumulation final : Program {
  Linear hidden{"hidden", 6, 16, init, tanh_activation}, rare{"rare", 6, 16, init, tanh_activation},
      out{"out", 16, 4, init};
  Accumulation() {
    register_module(rare);
    register_module(hidden);
    register_module(out);
  }
  static Rows rows(const Step& step) {
    const int64_t a = step.rows * (step.number % 4) / 6, b = (step.rows - a) / 3;
    return step.number % 2 ? Rows{a, b, step.rows - a - b} : Rows{step.rows - a - b, b, a};
  }
  Var loss(const Var& x, const Tensor& labels, int64_t first, const Step& step) {
    Tensor rows = Tensor::zeros({x.shape()[0], 16}, DType::f64);
    bool any = false;
    for (int64_t i = 0; i < x.shape()[0]; ++i)
      if ((first + i) % 5 == 2) {
        any = true;
        std::fill_n(rows.mutate<double>() + i * 16, 16, 1);
      }
    const Var h = any ? hidden(x) + rare(x) * constant_like(rows, x) : hidden(x);
    return share(sum(cross_entropy(out(h), constant_like(labels, x))), step.samples, step.comm);
  }
  void step(const Step& step) override {
    const MicroBatches batch(rows(step), step.comm);
    const Tensor x = step.draws({6}), labels = step.labels(4);
    for (int64_t i = 0; i < batch.count(); ++i) {
      Tape tape;
      step.begin(tape);
      const Var mine = loss(tape.constant(batch.part(x, i)), batch.part(labels, i), batch.first_sample(i), step);
      if (i + 1 == batch.count()) step.last();
      tape.backward(mine, step.gradients);
    }
  }
  void whole(const Step& step) override {
    Tape tape;
    tape.backward(loss(inputs(tape, step, {6}), step.labels(4), 0, step), step.gradients);
  }
};

struct GradientPenalty final : Program {
  Mlp critic{"critic", {5, 16, 1}, init, tanh_activation};
  GradientPenalty() { register_module(critic); }
  void step(const Step& step) override {
    Tape tape;
    step.begin(tape);
    const Var x = tape.watch(step.draws({5})), y = step.through(critic, x, {});
    const Var slopes = tape.gradient(sum(y), {x}, Graph::create)[0];
    const Var penalty = share(sum(square(norm(slopes, 1) - 1)), step.samples, step.comm);
    step.last();
    tape.backward(share(sum(y), step.samples, step.comm) + penalty, step.gradients);
  }
};

// The second loss is the square of the gradient of the global loss.
struct SynchronizedPenalty final : Program {
  Mlp network{"network", {5, 12, 3}, init, tanh_activation};
  SynchronizedPenalty() { register_module(network); }
  Var gradient(const Var& loss) const {
    return loss.tape()->gradient(loss, {loss.tape()->watch(*parameters()[0])}, Graph::create)[0];
  }
  void step(const Step& step) override {
    Tape tape;
    const Var loss = classified(network(inputs(tape, step, {5})), step);
    const Var penalty = sum(square(all_reduce_equal(gradient(loss), step.comm)));
    tape.backward(loss, step.gradients, Keep::tape);
    step.last();
    tape.backward(penalty, step.gradients);
  }
  void whole(const Step& step) override {
    Tape tape;
    const Var logits = network(inputs(tape, step, {5}));
    const Var loss = mean(cross_entropy(logits, constant_like(step.labels(3), logits)));
    tape.backward(loss + sum(square(gradient(loss))), step.gradients);
  }
};

struct CachedFeatures final : Program {
  Towers towers;
  CachedFeatures() { register_module(towers); }
  Features encode(Tape& tape, const Tensor& images, const Tensor& texts, int64_t first, const Step& step) {
    const Pass pass = {.training = true, .key = {static_cast<uint64_t>(step.number)}, .first_sample = first};
    return towers(tape.constant(images), tape.constant(texts), pass);
  }
  void step(const Step& step) override {
    const MicroBatches batch(Accumulation::rows(step), step.comm);
    const Tensor images = step.draws({3}), texts = step.draws({2}, 1);
    const auto part = [&](int64_t i, Tape& tape) {
      step.begin(tape);
      return encode(tape, batch.part(images, i), batch.part(texts, i), batch.first_sample(i), step);
    };
    const auto loss = [&](Tape&, const Features& all) {
      return towers.loss(all[0], all_gather_v(all[1], batch.rows(), step.comm), step.first);
    };
    cached_backward(batch.count(), part, loss, step.gradients, step.last);
  }
  void whole(const Step& step) override {
    Tape tape;
    const Features all = encode(tape, step.draws({3}), step.draws({2}, 1), 0, step);
    tape.backward(towers.loss(all[0], all[1], 0), step.gradients);
  }
};

template <class P> std::unique_ptr<Program> make(Communicator*) { return std::make_unique<P>(); }

}  // namespace

const std::vector<TrainingCase>& training_cases() {
  const auto conv_net = [](Communicator* group) -> std::unique_ptr<Program> {
    return std::make_unique<ConvNet>(group);
  };
  static const std::vector<TrainingCase> cases = {
      {.name = "MLP, clipped, AdamW",
       .make = make<Classifier>,
       .rule = AdamW{.epsilon = 1e-4},
       .rate = 0.01,
       .max_norm = 0.4,
       .layers = true},
      {.name = "conv net with batch norm", .make = conv_net, .layers = true},
      {.name = "parameters unused, here or everywhere",
       .make = make<Experts>,
       .in_step = false,
       .one_pass = false,
       .unused = true},
      {.name = "two losses, two backwards", .make = make<TwoLosses>, .one_pass = false, .layers = true},
      {.name = "adaptive weight of two losses", .make = make<AdaptiveWeight>, .queries = true},
      {.name = "three uneven micro-batches", .make = make<Accumulation>, .one_pass = false},
      {.name = "gradient penalty", .make = make<GradientPenalty>, .queries = true, .layers = true},
      {.name = "penalty on the gradient of all ranks",
       .make = make<SynchronizedPenalty>,
       .one_pass = false,
       .queries = true},
      {.name = "cached features with dropout", .make = make<CachedFeatures>, .in_step = false, .one_pass = false},
  };
  return cases;
}

const TrainingCase& training_case(const std::string& name) {
  for (const TrainingCase& c : training_cases())
    if (c.name.find(name) != std::string::npos) return c;
  fail({"there is no case of training called ", name});
}

}  // namespace weft
