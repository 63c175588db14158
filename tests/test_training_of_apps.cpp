#include "apps/shared/training.h"
#include "collectives/share.h"
#include "collectives/spreads.h"
#include "engine/nn/linear.h"
#include "engine/ops/reduce.h"
#include "tests/on_ranks.h"

namespace weft {
namespace {

// Calls body(training, parameter, comm) on some numbers of ranks, at every stage.
template <class Body> void at_every_stage(Body body) {
  for (const int64_t stage : {0, 1, 2, 3})
    on_ranks([&](Communicator& comm) {
      Options options;
      options.zero = stage;
      Traffic traffic;
      Parameter first("first", Tensor::full({3000}, 1, DType::f64)), scale("scale", Tensor::full({}, 7, DType::f64));
      const Launch rank{comm, traffic, Device::cpu, "", nullptr};
      Training training({{{&first, &scale}, Sgd{}}}, rank, options);
      body(training, scale, comm);
    });
}

TEST_CASE("a parameter changed after a step is changed on every rank, at any stage") {
  at_every_stage([](Training& training, Parameter& scale, Communicator& comm) {
    const auto value = [&] {
      Tape tape;
      return training.watch(tape, scale).value().item();
    };
    training.change(scale, [&] { scale.value.copy_from(scalar(5)); });
    expect(value() == 5, "the new value, not " + text(value()));
    training.change(scale, [] {});
    expect(value() == 5, "the same value, not " + text(value()));
    comm.barrier();
  });
}

TEST_CASE("a watched parameter of a loss over the batch gets the gradient of one process, at any stage") {
  at_every_stage([](Training& training, Parameter& scale, Communicator& comm) {
    const auto samples = std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7};
    const Training::Part part = training.part(samples);
    const auto encode = [&](int64_t block, Tape& tape) -> Features {
      Tensor values({static_cast<int64_t>(part.block(block).size()), 1}, DType::f64);
      for (int64_t i = 0; i < values.size(); ++i)
        values.mutate<double>()[i] = static_cast<double>(part.block(block)[static_cast<size_t>(i)]);
      return {tape.watch(values)};
    };
    const auto loss = [&](Tape& tape, const Features& mine) {
      const Var factor = training.watch(tape, scale);
      return training.over_batch(mine, part, [&](const Features& all, Communicator& group) {
        return as_partial(sum(all[0]) * factor, group);
      });
    };
    cached_backward(part.blocks(), encode, loss, training.gradients(), {}, Between::tapes);
    training.step(0.125);
    Tape tape;
    const double now = training.watch(tape, scale).value().item();
    expect(now == 7 - 0.125 * 28, "7 - rate * 28, not " + text(now));
    comm.barrier();
  });
}

TEST_CASE("with WEFT_DEBUG=1 a weight that is wrong on one rank is named before the step, and in backward") {
  setenv("WEFT_DEBUG", "1", 1);
  for (const bool fast : {false, true})
    on_ranks({2, 3, 5}, [&](Communicator& comm) {
      Options options;
      options.fast_reductions = fast;
      Traffic traffic;
      const Init init{.key = {5}, .dtype = DType::f64};
      Linear linear("linear", 3, 2, init);
      Training training({{linear.parameters(), Sgd{}}}, {comm, traffic, Device::cpu, "", nullptr}, options);
      const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6};
      const Training::Part part = training.part(samples);
      const auto backward = [&] {
        const auto encode = [&](int64_t block, Tape& tape) -> Features {
          return {linear(tape.constant(data_of(0, {7, 3}).slice(part.first(block), part.first(block + 1))))};
        };
        const auto loss = [&](Tape&, const Features& mine) {
          return training.over_batch(mine, part, [&](const Features& all, Communicator& group) {
            return share(sum(square(all[0])), part.total(), group);
          });
        };
        training.backward(part, encode, loss, Between::tapes);
      };
      backward();
      training.step(0.1);
      backward();
      if (number(comm) == comm.size() - 1) linear.weight.value.mutate<double>()[1] += 1e-9;
      const std::string last = "on rank " + std::to_string(comm.size() - 1);
      expect_refusal([&] { training.step(0.1); }, {"debug: a step: 'linear.weight' should be equal", last.c_str()});
      expect_refusal(backward, {"debug: parameter 'linear.weight', Replicated f64 (3, 2)", last.c_str()});
    });
  unsetenv("WEFT_DEBUG");
}

TEST_CASE("a question about a layer's weight is answered by all blocks and ranks together, at any stage") {
  for (const int64_t stage : {0, 1, 2, 3})
    on_ranks([&](Communicator& comm) {
      Options options;
      options.zero = stage;
      options.accumulate = 2;
      Traffic traffic;
      const Init init{.key = {5}, .dtype = DType::f64};
      Linear linear("linear", 50, 30, init), plain("linear", 50, 30, init);
      Training training({{linear.parameters(), Sgd{}}}, {comm, traffic, Device::cpu, "", nullptr}, options);
      Layer& layer = training.layer("linear", linear);
      const Tensor x = data_of(0, {7, 50});
      const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6};
      const Training::Part part = training.part(samples);
      Tensor answer = Tensor::zeros({50, 30}, DType::f64);
      for (int64_t i = 0; i < part.blocks(); ++i) {
        Tape tape;
        const int64_t first = part.first(i), last = part.first(i + 1);
        const Var loss =
            share(sum(square(layer(tape.constant(x.slice(first, last))))), part.total(), training.block_group());
        answer = (Var(answer) + training.gradient(loss, linear.weight)).value();
      }
      Tape whole;
      const Var loss = sum(square(plain(whole.constant(x)))) / 7;
      expect_close(comm.all_reduce(answer), whole.gradient(loss, {whole.watch(plain.weight)})[0]);
    });
}

}  // namespace
}  // namespace weft
