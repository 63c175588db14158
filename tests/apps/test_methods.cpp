// SPDX-License-Identifier: Apache-2.0
// The methods that train_contrastive offers by name: their trainings on ranks equal those on one process.
#include "apps/shared/choices/method.h"

#include <algorithm>

#include "tests/losses/codebook_checks.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

namespace weft {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

const Init init = {.key = {3}, .dtype = DType::f64};

struct Network : Module {
  std::unique_ptr<Sequential> trunk;
  std::unique_ptr<Method> method;

  explicit Network(const std::string& name) {
    const auto another = [](const std::string& prefix) {
      auto net = std::make_unique<Sequential>(prefix);
      net->add<Linear>(3, 5, init, Activation{.op = Unary::Tanh});
      net->add<Linear>(5, 4, init);
      return net;
    };
    trunk = another("trunk");
    register_module(*trunk);
    const MethodChoice choice = {.name = name, .temperature = 0.3, .momentum = 0.75, .bank = 7, .prototypes = 6};
    method = make_method(choice, {trunk->parameters(), another, 4, 3}, init);
    register_module(*method);
  }
};

// Parameters and buffers after some steps on pictures that are divided unevenly. What is watched is the norm of each
// step's gradients, and the loss of a few pictures after it.
checks::State trained(const std::string& name, const Training::Options& options, Communicator& comm,
                      std::vector<double>* watched = nullptr) {
  Network network(name);
  Training training({{network.parameters(), Sgd{}}}, comm, options);
  std::vector<int64_t> numbers(11);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  for (uint64_t step = 0; step < 3; ++step) {
    const auto encode = [&](Tape& tape, std::span<const int64_t> samples) -> Features {
      const auto view = [&](uint64_t number) {
        const Tensor all = Tensor::uniform({11, 3}, {step, number}, -1, 1, DType::f64);
        return tape.constant(samples.empty() ? all.slice(0, 0) : all.slice(samples.front(), samples.back() + 1));
      };
      Tensor labels(Shape{std::ssize(samples)}, DType::i64);
      for (size_t i = 0; i < samples.size(); ++i) labels.mutate<int64_t>()[i] = samples[i] % 3;
      return network.method->features(view(0), view(1), labels, [&](const Var& x) { return (*network.trunk)(x); });
    };
    const auto loss = [&](bool trains) {
      return [&, trains](const Features& features, Communicator& group) {
        return network.method->share(features, {.training = trains, .key = {step}}, group);
      };
    };
    training.backward(training.local_batch(numbers), encode, loss(true));
    const bool watches = watched && step > 0;
    const auto norm = training.step(0.1, infinity, watches ? Training::Norm::always : Training::Norm::if_needed);
    expect(norm.has_value() == watches, "a norm is measured if it is asked for");
    if (watches) {
      const std::span<const int64_t> few(numbers.data(), 4);
      watched->insert(watched->end(), {*norm, training.evaluate(training.local_batch(few), encode, loss(false))});
    }
    network.method->after_step();
  }
  checks::State state;
  for (const Parameter* p : network.parameters()) state.push_back(p->value.values());
  for (const Parameter* p : network.buffers()) state.push_back(p->value.values());
  return state;
}

Tensor as_tensor(const std::vector<double>& values) { return Tensor::from({std::ssize(values)}, values, DType::f64); }

void expect_close_states(const checks::State& actual, const checks::State& expected) {
  expect(actual.size() == expected.size(), "as many tensors");
  for (size_t i = 0; i < actual.size(); ++i) expect_close(as_tensor(actual[i]), as_tensor(expected[i]));
}

TEST_CASE("every method trains on ranks, with their weights divided or not, and in micro-batches, as on one process") {
  for (const std::string& name : names_of_methods()) {
    INFO(name);
    checks::State expected;
    run_ranks(1, [&](Communicator& comm) { expected = trained(name, {}, comm); });
    on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
      for (const Training::Options& options :
           {Training::Options{}, {.stage = 2}, {.accumulate = 2}, {.same_bits = true}})
        expect_close_states(trained(name, options, comm), expected);
    });
  }
}

TEST_CASE("what is watched is the same on any number of ranks, and changes nothing") {
  for (const std::string& name : names_of_methods()) {
    INFO(name);
    std::vector<double> expected;
    run_ranks(1, [&](Communicator& comm) { trained(name, {}, comm, &expected); });
    on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
      for (const Training::Options& options :
           {Training::Options{}, {.stage = 1}, {.stage = 2}, {.accumulate = 2}, {.same_bits = true}}) {
        std::vector<double> watched;
        const checks::State with = trained(name, options, comm, &watched);
        expect_close(as_tensor(watched), as_tensor(expected));
        expect(with == trained(name, options, comm), "the same bits as without a look");
      }
    });
  }
}

TEST_CASE("an average of weights replaces them for a while, on every rank, and is what the steps have been") {
  on_ranks({1, 2, 3, 5}, [&](Communicator& comm) {
    for (const int64_t stage : {0, 1, 2}) {
      Network network("pairs");
      Training training({{network.parameters(), Sgd{}}}, comm, {.stage = stage, .average = 0.6});
      Parameter& weight = *network.parameters()[0];
      Tensor expected = weight.value.clone();
      for (int step = 1; step <= 20; ++step) {
        Tape tape;
        const Var x = tape.constant(data_of(number(comm), {number(comm), 3}, step));
        tape.backward(sum(square((*network.trunk)(x))), training.gradients());
        training.step(0.01);
        const double kept = std::min(0.6, step / (step + 9.0));
        expected = (Var(expected) * kept + Var(weight.value) * (1 - kept)).value();
      }
      const Tensor own = weight.value.clone();
      training.averaged([&] { expect_close(weight.value, expected); });
      expect_same_bits(weight.value, own);
      expect(comm.size() == 1 || own.values() != expected.values(), "the steps have changed something");
    }
  });
}

TEST_CASE("a teacher begins as the network that it follows, and moves a part of the way after each step") {
  for (const char* name : {"moco", "byol", "dino"}) {
    INFO(name);
    Network network(name);
    Parameter& leader = *network.trunk->parameters()[0];
    const std::vector<Parameter*> buffers = network.buffers();
    const Parameter& follower = **std::find_if(buffers.begin(), buffers.end(),
                                               [](const Parameter* p) { return p->name == "teacher.0.weight"; });
    CHECK(follower.value.values() == leader.value.values());
    const Tensor before = leader.value;
    run_ranks(1, [&](Communicator& comm) {
      const Tensor views = Tensor::uniform({4, 3}, {5}, -1, 1, DType::f64);
      Tape tape;
      const Features features = network.method->features(tape.constant(views), tape.constant(views), {},
                                                         [&](const Var& x) { return (*network.trunk)(x); });
      network.method->share(features, {.training = true}, comm);
      leader.value = (Var(before) + 1).value();
      network.method->after_step();
    });
    expect_close(follower.value, Var(before) + 0.25);
  }
}

TEST_CASE("the bank of moco holds the teacher's features of the latest steps") {
  Network network("moco");
  const Parameter& keys = *network.buffers()[4];
  CHECK(keys.name == "bank.keys");
  run_ranks(1, [&](Communicator& comm) {
    for (const uint64_t step : {1, 2}) {
      Tape tape;
      const Var views = tape.constant(Tensor::uniform({4, 3}, {step}, -1, 1, DType::f64));
      const Features features =
          network.method->features(views, views, {}, [&](const Var& x) { return (*network.trunk)(x); });
      network.method->share(features, {.training = true}, comm);
      network.method->after_step();
      const Tensor latest = l2_normalize(features[1].value()).value();
      const int64_t first = 4 * static_cast<int64_t>(step - 1);  // of seven
      expect_close(keys.value.slice(first, first + 3), latest.slice(0, 3));
      expect_close(keys.value.slice((first + 3) % 7, (first + 3) % 7 + 1), latest.slice(3, 4));
    }
  });
}

TEST_CASE("methods with weights of their own are refused with divided weights, and teachers in bf16") {
  Options divided;
  divided.training.stage = 3;
  CHECK_NOTHROW(check_method({}, divided, true));
  for (const std::string& name : names_of_methods())
    if (name != "pairs") CHECK_THROWS_AS(check_method({.name = name}, divided, true), WrongOption);
  Options rounded;
  rounded.dtype = "bf16";
  for (const char* name : {"pairs", "supcon", "swav"}) CHECK_NOTHROW(check_method({.name = name}, rounded, true));
  for (const char* name : {"moco", "byol", "dino"})
    CHECK_THROWS_AS(check_method({.name = name}, rounded, true), WrongOption);
}

}  // namespace
}  // namespace weft
