// SPDX-License-Identifier: Apache-2.0
// The debug mode names the value that made a gradient non-finite.
#include "tests/support/on_ranks.h"
#include "weft/collectives/checks/debug_finite.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

TEST_CASE("the first non-finite value is named by rank, op and element when it reaches a parameter") {
  on_ranks([](Communicator& comm) {
    const int me = number(comm), odd = comm.size() - 1;
    const Parameter w("w", data_of(0, {2, 3}));
    for (const double given : {1.0, 0.0}) {
      Tape tape;
      const DebugFinite debug(tape, comm);
      Tensor x = Tensor::full({2, 3}, 1, DType::f64);
      if (me == odd) x.mutate<double>()[4] = given;
      const Var harmless = exp(tape.constant(Tensor::full({2, 3}, -INFINITY, DType::f64)));  // zeros
      const Var loss = sum((log(tape.constant(x)) + harmless) * tape.watch(w));
      Gradients gradients;
      const auto backward = [&] { tape.backward(loss, gradients); };
      if (me == odd && given == 0)
        expect_refusal(backward, {"debug: on rank ", "the gradient of parameter 'w' is not finite",
                                  "the first that is not is log", "f64 (2, 3): element (1, 1) is -inf"});
      else
        backward();
    }
  });
}

TEST_CASE("a parameter or gradient that is the first non-finite value is named as such") {
  run_ranks(1, [](Communicator& comm) {
    const auto said = [&](double weight, const std::function<Var(const Var&)>& loss_of) {
      const Parameter w("w", Tensor::full({2}, weight, DType::f64));
      Tape tape;
      const DebugFinite debug(tape, comm);
      const Var loss = loss_of(tape.watch(w));
      Gradients gradients;
      try {
        tape.backward(loss, gradients);
      } catch (const Fault& fault) {
        expect(fault.exit_code == exit_codes::non_finite, "another exit code");
        return std::string(fault.what());
      }
      return std::string();
    };
    const auto product = [](const Var& w) { return sum(w * w); };
    const auto root = [](const Var& w) { return sum(sqrt(w)); };
    expect(said(1, product).empty() && said(1, root).empty(), "what is finite is named");
    expect(said(NAN, product).find("the first that is not is parameter 'w', f64 (2): element (0) is nan") !=
               std::string::npos,
           said(NAN, product));
    expect(said(0, root).find("the first that is not is this, element (0) is inf") != std::string::npos, said(0, root));
  });
}
