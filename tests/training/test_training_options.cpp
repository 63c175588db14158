// SPDX-License-Identifier: Apache-2.0
#include "weft/optim/training.h"

#include <algorithm>

#include "tests/support/on_ranks.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/share.h"
#include "weft/data/batches.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

namespace weft {
namespace {

// The rows of consecutive samples in the data.
Tensor rows_of(const Tensor& data, std::span<const int64_t> samples) {
  return samples.empty() ? data.slice(0, 0) : data.slice(samples.front(), samples.back() + 1);
}

// Calls body(options, comm) on several numbers of ranks, at every stage of both modes.
template <class Body> void in_every_mode(Body body) {
  for (const bool same_bits : {false, true})
    for (const int64_t stage : {0, 1, 2, 3})
      if (!same_bits || stage < 3)
        on_ranks([&](Communicator& comm) { body({.stage = stage, .same_bits = same_bits}, comm); });
}

// Calls body(training, parameter, comm) for each.
template <class Body> void with_a_parameter(Body body) {
  in_every_mode([&](const Training::Options& options, Communicator& comm) {
    Parameter first("first", Tensor::full({3000}, 1, DType::f64)), scale("scale", Tensor::full({}, 7, DType::f64));
    Training training({{{&first, &scale}, Sgd{}}}, comm, options);
    body(training, scale, comm);
  });
}

TEST_CASE("a parameter set after a step is set on every rank, at any stage") {
  with_a_parameter([](Training& training, Parameter& scale, Communicator& comm) {
    const auto value = [&] {
      Tape tape;
      return training.watch(scale, tape.watch(Tensor::zeros({}, DType::f64))).value().item();
    };
    training.change(scale, [&] { scale.value.copy_from(scalar(5)); });
    expect(value() == 5, "the new value, not " + text(value()));
    training.change(scale, [] {});
    expect(value() == 5, "the same value, not " + text(value()));
    comm.barrier();
  });
}

TEST_CASE("the gradient of a watched parameter of a batch loss equals that of one process, at any stage") {
  with_a_parameter([](Training& training, Parameter& scale, Communicator& comm) {
    const auto samples = std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7};
    const auto encode = [](Tape& tape, std::span<const int64_t> numbers) -> Features {
      Tensor values({std::ssize(numbers), 1}, DType::f64);
      std::copy(numbers.begin(), numbers.end(), values.mutate<double>());
      return {tape.watch(values)};
    };
    const auto loss = [&](const Features& features, Communicator& group) {
      return as_partial(sum(features[0]) * training.watch(scale, features[0]), group);
    };
    training.backward(training.local_batch(samples), encode, loss);
    training.step(0.125);
    Tape tape;
    const double now = training.watch(scale, tape.watch(Tensor::zeros({}, DType::f64))).value().item();
    expect(now == 7 - 0.125 * 28, "7 - rate * 28, not " + text(now));
    comm.barrier();
  });
}

TEST_CASE("a step has one tape from the samples to the loss, and the bits of cached features, at any stage") {
  for (const int64_t stage : {0, 1, 2, 3})
    on_ranks([=](Communicator& comm) {
      const auto trained = [&](bool recompute) {
        Linear linear("linear", 3, 2, {.key = {5}, .dtype = DType::f64});
        Training training({{linear.parameters(), Sgd{}}}, comm, {.stage = stage, .recompute = recompute});
        Layer& layer = training.layer("linear", linear);
        const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6};
        const LocalBatch batch = training.local_batch(samples);
        const Tape* tape_of_samples = nullptr;
        const auto encode = [&](Tape& tape, std::span<const int64_t> numbers) -> Features {
          tape_of_samples = &tape;
          return {layer(tape.constant(rows_of(data_of(0, {7, 3}), numbers)))};
        };
        const auto loss = [&](const Features& features, Communicator& group) {
          expect(recompute || features[0].tape() == tape_of_samples, "the loss is on the tape of the samples");
          const Var all = all_gather_v(features[0], batch.rows, group);
          return share(sum(square(matmul(features[0], all, Transpose::no, Transpose::yes))), batch.total, group);
        };
        training.backward(batch, encode, loss);
        training.step(0.1);
        Tape tape;
        return training.watch(linear.weight, tape.watch(Tensor::zeros({}, DType::f64))).value();
      };
      expect_same_bits(trained(false), trained(true));
    });
}

TEST_CASE("a training with the same bits at stage 3 is refused") {
  run_ranks(1, [](Communicator& comm) {
    Parameter parameter("parameter", scalar(1));
    const Training::Options options = {.stage = 3, .same_bits = true};
    expect_refusal([&] { Training({{{&parameter}, Sgd{}}}, comm, options); }, {"Training: same_bits at stage 3"});
  });
}

TEST_CASE("WEFT_DEBUG=1 names a weight that differs on one rank before the step and in backward") {
  setenv("WEFT_DEBUG", "1", 1);
  for (const bool same_bits : {false, true})
    on_ranks({2, 3, 5}, [&](Communicator& comm) {
      const Init init{.key = {5}, .dtype = DType::f64};
      Linear linear("linear", 3, 2, init);
      Training training({{linear.parameters(), Sgd{}}}, comm, {.same_bits = same_bits});
      const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6};
      const LocalBatch batch = training.local_batch(samples);
      const auto backward = [&] {
        const auto encode = [&](Tape& tape, std::span<const int64_t> numbers) -> Features {
          return {linear(tape.constant(rows_of(data_of(0, {7, 3}), numbers)))};
        };
        const auto loss = [&](const Features& features, Communicator& group) {
          return share(sum(square(features[0])), batch.total, group);
        };
        training.backward(batch, encode, loss);
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

TEST_CASE("a gradient query for a layer's weight covers all micro-batches and ranks, at any stage") {
  in_every_mode([](Training::Options options, Communicator& comm) {
    options.accumulate = 2;
    const Init init{.key = {5}, .dtype = DType::f64};
    Linear linear("linear", 50, 30, init), plain("linear", 50, 30, init);
    Training training({{linear.parameters(), Sgd{}}}, comm, options);
    Layer& layer = training.layer("linear", linear);
    const Tensor x = data_of(0, {7, 50});
    const std::vector<int64_t> samples = {0, 1, 2, 3, 4, 5, 6};
    const LocalBatch batch = training.local_batch(samples);
    Tensor answer = Tensor::zeros({50, 30}, DType::f64);
    for (const MicroBatch& micro : batch.micro_batches) {
      Tape tape;
      const Var made = layer(tape.constant(rows_of(x, micro.samples)));
      const Var loss = share(sum(square(made)), batch.total, training.micro_batch_group());
      answer = (Var(answer) + training.gradient(loss, linear.weight)).value();
    }
    Tape whole;
    const Var loss = sum(square(plain(whole.constant(x)))) / 7;
    expect_close(comm.all_reduce(answer), whole.gradient(loss, {whole.watch(plain.weight)})[0]);
  });
}

TEST_CASE("micro-batches are weighted by their samples, and all weights sum to one over every group") {
  for (const bool same_bits : {false, true})
    for (const int64_t count : {1, 7, 96})
      on_ranks([=](Communicator& comm) {
        Parameter parameter("parameter", scalar(1));
        Training training({{{&parameter}, Sgd{}}}, comm, {.accumulate = 2, .same_bits = same_bits});
        const std::vector<int64_t> samples = samples_between(0, count);
        const LocalBatch batch = training.local_batch(samples);
        double sum = 0;
        for (const MicroBatch& micro : batch.micro_batches) {
          const double mine = static_cast<double>(micro.samples.size());
          const double all = training.micro_batch_group().all_reduce(scalar(mine)).item();
          expect(std::abs(micro.weight - all / static_cast<double>(count)) < 1e-15, "the weight of a micro-batch");
          sum += mine;
        }
        expect(comm.all_reduce(scalar(sum)).item() == static_cast<double>(count), "every sample once");
      });
}

}  // namespace
}  // namespace weft
