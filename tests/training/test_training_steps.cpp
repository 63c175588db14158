// SPDX-License-Identifier: Apache-2.0
// Steps of DataParallel apart from the sums of gradients.
#include <cmath>

#include "tests/support/chosen_terms.h"
#include "tests/training/training_cases.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"

using namespace weft;

namespace {

DataParallel::Options stage(int number) { return {.stage = number}; }

struct Pair {
  Parameter a{"a", Tensor::full({2000}, 1, DType::f64)}, b{"b", Tensor::full({5}, 2, DType::f64)};
  std::vector<ParameterGroup> groups() { return {{{&a, &b}, Sgd{}}}; }
  void backward(Gradients& into, double slope) {
    Tape tape;
    tape.backward(sum(tape.watch(a) * tape.constant(Tensor::full({2000}, slope, DType::f64))), into);
  }
};

}  // namespace

TEST_CASE("ranks without shared memory gather the parameters that each has updated") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    Communicator comm(std::make_unique<ForwardingTransport>(std::move(transport)));
    const TrainingCase& c = training_case("MLP");
    const Weights base = trained(c, comm);
    for (const int number : {1, 2}) expect(difference(trained(c, comm, stage(number)), base) == 0, "the same bits");
  });
}

TEST_CASE("tapes notice that a step has changed parameters, including those updated by other ranks") {
  on_ranks([](Communicator& comm) {
    for (const int number : {0, 1, 2}) {
      Pair pair;
      DataParallel training(pair.groups(), comm, stage(number));
      Tape before;
      const Var a = before.watch(pair.a);
      pair.backward(training.gradients(), 1);
      training.step(0.5);
      expect(pair.a.value.values() == std::vector<double>(2000, 1 - 0.5 * comm.size()), "a sum over ranks");
      expect(pair.b.value.values() == std::vector<double>(5, 2), "nobody has used this one");
      expect_refusal([&] { a.value(); }, {"was changed in place"});
    }
  });
}

TEST_CASE("a step with non-finite gradients changes nothing, and discard allows the next one") {
  on_ranks([](Communicator& comm) {
    for (const int number : {0, 1, 2}) {
      Pair pair;
      DataParallel training(pair.groups(), comm, stage(number));
      pair.backward(training.gradients(), weft::number(comm) == 0 ? std::nan("") : 1);
      expect_refusal([&] { training.step(1, 100); }, {"the norm of the gradients is"});
      expect(pair.a.value.values() == std::vector<double>(2000, 1), "no step was made");
      training.discard();
      pair.backward(training.gradients(), 1 / std::sqrt(2000.0));
      expect_close(scalar(training.step(1, 0.5)), scalar(comm.size()));
      expect_close(pair.a.value, Tensor::full({2000}, 1 - 0.5 / std::sqrt(2000.0), DType::f64));
    }
  });
}

TEST_CASE("differing parameters and unknown stages are refused") {
  run_ranks(2, [](Communicator& comm) {
    Pair pair;
    expect_refusal([&] { DataParallel(pair.groups(), comm, stage(3)); },
                   {"data parallel: there is no stage 3 here; stage 3 is Sharded"});
    if (number(comm) == 1) pair.b.value = Tensor::full({5}, 3, DType::f64);
    expect_refusal([&] { DataParallel(pair.groups(), comm); }, {"data parallel", "b"});
  });
}

TEST_CASE("a rank with a constant loss takes part in a step") {
  on_ranks([](Communicator& comm) {
    for (const int number : {0, 1, 2}) {
      Pair pair;
      DataParallel training(pair.groups(), comm, stage(number));
      training.expect_last_pass();
      if (weft::number(comm) == 0) {
        Tape tape;
        tape.backward(tape.constant(scalar(0)), training.gradients());
      } else {
        pair.backward(training.gradients(), 1);
      }
      training.step(0.5);
      expect(pair.a.value.values() == std::vector<double>(2000, 1 - 0.5 * (comm.size() - 1)), "the others' sum");
    }
  });
}
