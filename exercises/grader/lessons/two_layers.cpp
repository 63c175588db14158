// SPDX-License-Identifier: Apache-2.0
#include "exercises/grader/lessons.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"

namespace weft::grader {
namespace {

using LayersOf = std::function<Var(const Var& x, const Var& a, const Var& b, Communicator& comm)>;

// The samples are hidden units here. All ranks have the same loss of the same result, which counts once.
Measure of_layers(const LayersOf& answer) {
  return [=](Communicator& comm, const Rows& units) -> std::vector<Tensor> {
    const int64_t own = rows_of_rank(units, comm.rank().value);
    Tape tape;
    const Var x = with_placement(tape.watch(normal({3, 2}, 1, 0)), comm, Placement::invariant);
    const Var a = tape.watch(normal({2, own}, 2, comm)), b = tape.watch(normal({own, 2}, 3, comm));
    const Var y = answer(x, a, b, comm);
    const Placement placement = placement_of(y, comm);
    require(placement == Placement::invariant, "the result is ", placement,
            " for the tape, not Invariant: its cotangents would not be equal on all ranks");
    const Var loss = sum(y * replicated_constant(normal(y.shape(), 4, 0)));
    const std::vector<Var> all = tape.gradient(loss, {x, a, b});
    return {y.value(), all[0].value(), all[1].value(), all[2].value()};
  };
}

Var hidden(const Var& x, const Var& a) { return tanh(matmul(x, a)); }
// Two layers with wrong conversions before and behind.
using Conversion = std::function<Var(const Var& x, Communicator& comm)>;
LayersOf converted(const Conversion& before, const Conversion& behind) {
  return [=](const Var& x, const Var& a, const Var& b, Communicator& comm) {
    return behind(matmul(hidden(before(x, comm), a), b), comm);
  };
}

Conversion trusted(Placement placement) {
  return [=](const Var& x, Communicator& comm) { return with_placement(x, comm, placement); };
}
Var varied(const Var& x, Communicator& comm) { return vary(x, comm); }
Var summed_equal(const Var& x, Communicator& comm) { return all_reduce_equal(x, comm); }
// What flows back is multiplied by a number.
Var scaled_back(const Var& x, double by) { return x * by + detach(x * (1 - by)); }

}  // namespace

Lesson two_layers(const LayersOf& learner) {
  const auto mistake = [](const char* signature, const char* what, const Conversion& before, const Conversion& behind) {
    return Answer{signature, what, of_layers(converted(before, behind))};
  };
  const Conversion invariant = trusted(Placement::invariant), replicated = trusted(Placement::replicated);
  return {
      6,
      "conversions of placements",
      {{"the result"}, {"the cotangent of x", 1}, {"the cotangent of a", 1}, {"the cotangent of b", 1}},
      of_layers(learner),
      of_layers(converted(varied, summed_equal)),
      {
          mistake("S29",
                  "x is not varied: each rank has what its own units say of x, and the sum over ranks is missing.",
                  replicated, summed_equal),
          mistake(
              "S1", "x is a constant: nothing comes back to it.",
              [](const Var& x, Communicator&) { return x.tape()->constant(detach(x).value()); }, summed_equal),
          mistake(
              "S6", "What ranks say of x is averaged. The adjoint of handing x to all ranks is a sum.",
              [](const Var& x, Communicator& comm) { return scaled_back(vary(x, comm), 1.0 / comm.size()); },
              summed_equal),
          mistake(
              "S7", "What ranks say of x is summed_equal, and then multiplied by the number of ranks.",
              [](const Var& x, Communicator& comm) { return scaled_back(vary(x, comm), comm.size()); }, summed_equal),
          mistake(
              "S4", "Each rank has what its own units say of x, times the number of ranks.",
              [](const Var& x, Communicator& comm) {
                return scaled_back(with_placement(x, comm, Placement::replicated), comm.size());
              },
              summed_equal),
          mistake("S7",
                  "The result is summed with an all_reduce, whose adjoint sums, and then taken for Invariant, whose "
                  "cotangents are equal already: what comes back is W times the gradient.",
                  varied,
                  [](const Var& y, Communicator& comm) {
                    return with_placement(all_reduce(y, comm), comm, Placement::invariant);
                  }),
          mistake("", "The result is a rank's own term of the sum; nothing has summed_equal it over ranks.", varied,
                  invariant),
          mistake("", "The terms of the result are averaged over ranks, not summed_equal.", varied,
                  [](const Var& y, Communicator& comm) { return all_reduce_equal(y, comm) / comm.size(); }),
          mistake("S1", "The sum of the terms is a constant: nothing comes back.", varied,
                  [](const Var& y, Communicator& comm) {
                    return detach(all_reduce_equal(y, comm)) + 0 * all_reduce_equal(y, comm);
                  }),
      }};
}

}  // namespace weft::grader
