// SPDX-License-Identifier: Apache-2.0
// What DataParallel and Sharded share: several rules and types, frozen parameters, several trainings in one backward,
// gradients that are inspected before a step, and parameters without a gradient.
#include <algorithm>
#include <deque>

#include "tests/support/on_ranks.h"
#include "weft/collectives/group_placement.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/make_trainer.h"
#include "weft/optim/parallel/sharded.h"

using namespace weft;

namespace {

constexpr int stages[] = {0, 1, 2, 3};

// Layers of two types.
struct Mixed : Module {
  const DType wide_type, narrow_type;
  Linear wide, narrow;
  explicit Mixed(DType first, DType second)
      : wide_type(first),
        narrow_type(second),
        wide("wide", 5, 40, {.key = {3}, .dtype = first}, {.op = Unary::Tanh}),
        narrow("narrow", 40, 60, {.key = {3}, .dtype = second}, {.op = Unary::Tanh}) {
    register_module(wide);
    register_module(narrow);
  }
  std::vector<ParameterGroup> groups() {
    return {{{&wide.weight, &narrow.weight}, Muon{}}, {{&wide.bias, &narrow.bias}, AdamW{}, 0.1}};
  }
  Var loss(const Tensor& x, Tape& tape, Layer& first, Layer& second) {
    const Var y = second(cast(first(tape.constant(x)), narrow_type));
    return cast(sum(square(y)), DType::f64);
  }
  Tensor data(int rank, int step) const { return data_of(rank, {2, 5}, step, wide_type); }
};

// All values concatenated.
std::vector<double> values_of(const Trainer& training, const Module& module) {
  std::vector<double> all;
  for (const Parameter* p : module.parameters())
    for (const double v : training.whole(*p).values()) all.push_back(v);
  return all;
}

std::vector<double> trained(Communicator& comm, int stage, DType first, DType second) {
  Mixed net(first, second);
  const auto training = make_trainer(net.groups(), comm, {.stage = stage, .bucket = 100});
  Layer &wide = training->layer("wide", net.wide), &narrow = training->layer("narrow", net.narrow);
  for (int step = 0; step < 5; ++step) {
    Tape tape;
    training->expect_last_pass();
    tape.backward(net.loss(net.data(number(comm), step), tape, wide, narrow), training->gradients());
    expect(training->step(0.01, 0.5) > 0.5, "clipping is at work");
  }
  return values_of(*training, net);
}

// One process with all samples: an optimizer for each type and one norm.
std::vector<double> trained_alone(int ranks, DType first, DType second) {
  Mixed net(first, second);
  Optimizer of_wide({{{&net.wide.weight}, Muon{}}, {{&net.wide.bias}, AdamW{}, 0.1}}),
      of_narrow({{{&net.narrow.weight}, Muon{}}, {{&net.narrow.bias}, AdamW{}, 0.1}});
  for (int step = 0; step < 5; ++step) {
    Gradients gradients;
    for (int r = 0; r < ranks; ++r) {
      Tape tape;
      tape.backward(net.loss(net.data(r, step), tape, net.wide, net.narrow), gradients);
    }
    const double scale = clip(std::hypot(of_wide.norm(gradients), of_narrow.norm(gradients)), 0.5);
    of_wide.step(gradients, 0.01, scale);
    of_narrow.step(gradients, 0.01, scale);
  }
  std::vector<double> all;
  for (const Parameter* p : net.parameters())
    for (const double v : p->value.values()) all.push_back(v);
  return all;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  require(a.size() == b.size(), a.size(), " values, not ", b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("optimizers of several rules and parameters of several types share a backward, a norm and a step",
          "[trainer]") {
  struct Types {
    DType first, second;
    double bound;
  };
  for (const auto& [first, second, bound] :
       {Types{DType::f64, DType::f64, 1e-12}, {DType::f64, DType::f32, 1e-5}, {DType::bf16, DType::f32, 2e-2}})
    on_ranks([&, first = first, second = second, bound = bound](Communicator& comm) {
      const auto at_first = trained(comm, 0, first, second), alone = trained_alone(comm.size(), first, second);
      const double far = distance(at_first, alone);
      expect(far < bound, text(far) + " from one process");
      for (const int stage : {1, 2, 3})
        expect(trained(comm, stage, first, second) == at_first, "stage " + text(stage) + " has the bits of stage 0");
    });
}

TEST_CASE("whole-matrix optimizer steps have the same bits on any number of ranks, at any stage", "[trainer]") {
  for (const Rule& rule : {Rule(Muon{}), Rule(Adafactor{}), Rule(Adam{.amsgrad = true})})
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
      INFO(name(rule) << " " << text(dtype));
      std::vector<double> expected;
      const auto train = [&](Communicator& comm, int stage) {
        const std::vector<Shape> shapes = {{70, 30}, {5, 900}, {3, 3, 2, 8}, {33, 1}};
        std::deque<Parameter> parameters;
        std::vector<Parameter*> all;
        for (size_t i = 0; i < shapes.size(); ++i)
          all.push_back(&parameters.emplace_back(text(i), Tensor::normal(shapes[i], {7, i}, 0, 1, dtype)));
        DataParallel training({{all, rule}}, comm, {.stage = stage});
        for (uint64_t step = 0; step < 4; ++step) {
          for (size_t i = 0; i < shapes.size(); ++i)  // from one rank alone, so that sums are exact
            if (static_cast<int>((i + step) % 5) % comm.size() == number(comm) && (i + step) % 4 != 3)
              training.gradients().add(parameters[i], Tensor::normal(shapes[i], {step, i}, 0, 1, dtype));
          training.step(0.01);
        }
        std::vector<double> values;
        for (const Parameter& p : parameters)
          for (const double v : p.value.values()) values.push_back(v);
        comm.barrier();
        return values;
      };
      run_ranks(1, [&](Communicator& comm) { expected = train(comm, 0); });
      on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
        for (const int stage : {0, 1, 2}) expect(train(comm, stage) == expected, "other bits at stage " + text(stage));
      });
    }
}

TEST_CASE("a generator's loss passes through its frozen discriminator, and one backward serves both, at any stage",
          "[trainer]") {
  for (const int stage : stages)
    on_ranks([&](Communicator& comm) {
      const Init init = {.key = {3}, .dtype = DType::f64};
      struct Pair {
        Linear maker, judge;
        explicit Pair(const Init& init)
            : maker("maker", 3, 20, init, {.op = Unary::Tanh}), judge("judge", 20, 1, init, {.op = Unary::Tanh}) {}
      } plain(init), pair(init);
      const auto making = make_trainer({{pair.maker.parameters(), Adam{}}}, comm, {.stage = stage});
      const auto judging = make_trainer({{pair.judge.parameters(), Sgd{.momentum = 0.9}}}, comm, {.stage = stage});
      Layer &maker = making->layer("maker", pair.maker), &judge = judging->layer("judge", pair.judge);
      Optimizer of_maker(plain.maker.parameters(), Adam{}), of_judge(plain.judge.parameters(), Sgd{.momentum = 0.9});
      Gradients both({&making->gradients(), &judging->gradients()});
      for (int step = 0; step < 5; ++step) {
        const auto noise = [&](int r) { return data_of(r, {2, 3}, 2 * step); };
        const auto real = [&](int r) { return data_of(r, {2, 20}, 2 * step + 1); };
        Gradients of_plain_maker, of_plain_judge, unwanted;
        for (int r = 0; r < comm.size(); ++r) {
          Tape of_deceit, of_judgement;
          const Var made = plain.maker(of_deceit.constant(noise(r)));
          of_deceit.backward(-sum(plain.judge(made)), of_plain_maker);
          const Var fake = plain.judge(of_judgement.constant(made.value()));
          of_judgement.backward(sum(fake) - sum(plain.judge(of_judgement.constant(real(r)))), of_plain_judge);
        }
        of_maker.step(of_plain_maker, 0.1);
        of_judge.step(of_plain_judge, 0.1);

        Tape tape;
        const Var made = maker(tape.constant(noise(number(comm))));
        const auto deceit = [&] {
          const Tape::Freeze frozen(tape, pair.judge.parameters());
          return -sum(judge(made));
        };
        const Var judgement = sum(judge(tape.constant(made.value()))) - sum(judge(tape.constant(real(number(comm)))));
        tape.backward(deceit() + judgement, both);
        making->step(0.1);
        judging->step(0.1);
      }
      expect_close(making->whole(pair.maker.weight), plain.maker.weight.value);
      expect_close(judging->whole(pair.judge.weight), plain.judge.weight.value);
      expect_close(judging->whole(pair.judge.bias), plain.judge.bias.value);
      comm.barrier();
    });
}

TEST_CASE("a gradient of a parameter that is not trained is refused, with advice", "[trainer]") {
  for (const int stage : stages) {
    INFO("stage " << stage);
    on_ranks({1, 2}, [&](Communicator& comm) {
      Parameter a("a", Tensor::full({3}, 1)), b("b", Tensor::full({3}, 1));
      const auto training = make_trainer({{{&a}, Sgd{}}}, comm, {.stage = stage});
      const auto backward = [&](bool frozen) {
        Tape tape;
        std::optional<Tape::Freeze> freeze;
        if (frozen) freeze.emplace(tape, std::vector<Parameter*>{&b});
        const Var mine = tape.constant(Tensor::full({3}, 1));
        tape.backward(sum(training->watch(tape, a) * tape.watch(b) * mine), training->gradients());
      };
      expect_refusal([&] { backward(false); }, {"gradients: b is not among the parameters that are trained here",
                                                "make it a constant with Tape::Freeze"});
      training->discard();
      backward(true);
      training->step(0.5);
      expect_close(training->whole(a), Tensor::full({3}, 1 - 0.5 * comm.size()));
      expect_refusal([&] { training->reduced(b); }, {"training: b is not among"});
    });
  }
}

TEST_CASE("gradients can be read and changed between the two halves of a step, at any stage", "[trainer]") {
  for (const int stage : stages)
    on_ranks([&](Communicator& comm) {
      // Parameters of several types: one straddles ranks, one is a single number, one is used by a single rank and one
      // by none.
      Parameter a("a", Tensor::full({30, 100}, 1, DType::f64)), b("b", Tensor::full({7}, 2, DType::f32)),
          some("some", Tensor::full({2, 2}, 3, DType::f64)), none("none", Tensor::full({2}, 4, DType::f64)),
          one("one", Tensor::full({}, 5, DType::f64));
      const auto training = make_trainer({{{&a, &one, &some, &none}, Sgd{}}, {{&b}, Sgd{}}}, comm, {.stage = stage});
      // At stage 0 every rank sees all elements in their shape, else its own shard.
      const auto seen_by_all = [&](const Parameter& parameter) {
        const Tensor seen = training->reduced(parameter);
        if (stage > 0 && comm.size() > 1) return comm.all_reduce(scalar(static_cast<double>(seen.size()))).item();
        expect(seen.shape() == parameter.value.shape(), text(seen.shape()));
        return static_cast<double>(seen.size());
      };
      const auto term = [&](int r, int step) { return data_of(r, {30, 100}, step); };
      for (int step = 0; step < 3; ++step) {
        const Tensor before = training->whole(a).clone(), before_b = training->whole(b).clone();
        const bool mine = number(comm) == comm.size() - 1;
        Tape tape;
        const Var in_a = sum(training->watch(tape, a) * tape.constant(term(number(comm), step)));
        const Var in_b = cast(sum(training->watch(tape, b)), DType::f64), in_some = sum(training->watch(tape, some));
        const Var in_all = in_a + in_b + training->watch(tape, one);
        tape.backward(mine ? in_all + in_some : in_all, training->gradients());
        training->reduce();
        const Tensor sums = total(comm, [&](int r) { return Var(term(r, step)); }).value();
        double squares = 0;
        for (const double v : sums.values()) squares += v * v;
        expect_close(scalar(training->norm()), scalar(std::sqrt(squares + 8.0 * comm.size() * comm.size() + 4)));
        expect(seen_by_all(a) == 3000 && seen_by_all(one) == 1, "every element is somebody's");
        expect(!training->reduced(none).defined() && training->reduced(some).defined(), "who has a gradient");
        // Clipped by value, in place, and once even if several ranks share the memory.
        Tensor seen = training->reduced(a);
        seen.copy_from((clamp(seen, -0.5, 0.5) * 2).value());
        Tensor of_b = training->reduced(b);
        of_b.copy_from((Var(of_b) * 3).value());
        expect(training->reduced(b).values() == of_b.values(), "what was written is there");
        training->step(0.25);
        expect_close(training->whole(a), Var(before) - clamp(sums, -0.5, 0.5) * 0.5);
        expect_close(training->whole(b), Var(before_b) - 0.75 * comm.size());
      }
      expect(training->whole(none).values() == std::vector<double>(2, 4), "nothing has happened to it");
      comm.barrier();
    });
}

TEST_CASE("a parameter without a gradient on any rank is named on every rank before anything is changed", "[trainer]") {
  for (const int stage : stages)
    on_ranks({1, 3}, [&](Communicator& comm) {
      Parameter used("used", Tensor::full({2000}, 1)), some("some", Tensor::full({3}, 1)),
          lost("lost", Tensor::full({3}, 1)), other("other", Tensor::full({3}, 1, DType::f64));
      const std::vector<ParameterGroup> groups = {
          {.parameters = {&used, &some, &lost, &other}, .rule = Sgd{}, .unused_steps = 3}};
      const auto training = make_trainer(groups, comm, {.stage = stage});
      int begun = 0;
      const auto step = [&] {
        Tape tape;
        Var loss = sum(training->watch(tape, used) * tape.constant(Tensor::full({2000}, 1)));
        const Var in_some = sum(training->watch(tape, some));
        if (number(comm) == comm.size() - 1 && ++begun < 3) loss = loss + in_some;
        tape.backward(loss, training->gradients());
        training->step(0.25);
      };
      step();
      step();
      const Tensor before = training->whole(used).clone();
      expect_refusal(step, {"no gradient has reached lost, other yet, on any rank", "unused_steps = 0"});
      expect_same_bits(training->whole(used), before);
      comm.barrier();
      training->step(0.25);
      expect_close(training->whole(used), Var(before) - 0.25 * comm.size());
      step();
      expect_close(training->whole(used), Var(before) - 0.5 * comm.size());
      comm.barrier();
    });
}

TEST_CASE("parameters are read, used, queried and changed in the same way at every stage", "[trainer]") {
  for (const int stage : stages)
    for (const DType dtype : {DType::f64, DType::bf16})
      on_ranks([&](Communicator& comm) {
        Linear linear("linear", 4, 300, {.key = {3}, .dtype = dtype});
        const Tensor weight = linear.weight.value.clone();
        const auto training = make_trainer({{linear.parameters(), Sgd{}}}, comm, {.stage = stage});
        Layer& layer = training->layer("linear", linear);
        expect_same_bits(training->whole(linear.weight), weight);
        Tape tape;
        const Var x = tape.constant(data_of(number(comm), {2, 4}, 0, dtype));
        const Var loss = cast(sum(layer(x)), DType::f32) + cast(sum(training->watch(tape, linear.bias)), DType::f32);
        const Tensor answer = comm.all_reduce(training->gradient(loss, linear.bias).to(DType::f32));
        expect(answer.values() == std::vector<double>(300, 3 * comm.size()), "the whole gradient");
        training->set(linear.bias, Tensor::full({300}, 5, dtype));
        training->change(linear.bias, [&] { linear.bias.value.copy_from(Tensor::full({300}, 6, dtype)); });
        expect(training->whole(linear.bias).values() == std::vector<double>(300, 6), "the new value");
        Tape again;
        again.backward(cast(sum(layer(again.constant(x.value()))), DType::f32), training->gradients());
        training->step(0.5);
        expect(training->whole(linear.bias).values() == std::vector<double>(300, 6 - comm.size()), "and on from there");
        comm.barrier();
      });
}

// The term counts once, as on one process, although no collective of the loss has shown the group to the tape; and a
// question about the loss does not change that.
TEST_CASE("a loss of parameters alone counts once at every stage, whether or not it is looked at") {
  on_ranks([](Communicator& comm) {
    const std::vector<double> once = {0.6, -0.2, 1.2};  // w - 0.1 d(sum w^2) / dw * 2
    for (const int stage : {0, 1, 2, 3})
      for (const bool looked_at : {false, true}) {
        Parameter w("w", Tensor::from({3}, {1, -1.0 / 3, 2}, DType::f64));
        const auto training = make_trainer({{{&w}, Sgd{}}}, comm, {.stage = stage});
        for (int pass = 0; pass < 2; ++pass) {
          Tape tape;
          const Var loss = sum(square(training->watch(tape, w)));
          if (looked_at) placement_of(loss, comm);
          tape.backward(loss, training->gradients());
        }
        training->step(0.1);
        expect_close(training->whole(w), Tensor::from({3}, once, DType::f64));
      }
  });
}
