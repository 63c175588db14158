#include "apps/shared/training.h"
#include "collectives/spreads.h"
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
      const Launch rank{comm, traffic, Device::cpu, ""};
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

}  // namespace
}  // namespace weft
