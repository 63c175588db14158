// SPDX-License-Identifier: Apache-2.0
#pragma once
// The work that a step gives a card, captured once and then launched as a whole, which spares the host most of a step.
//
//   const std::unique_ptr<StepGraph> graph = backend(device).make_graph();
//   ...
//   batch.copy_from(...);                                            // what changes from step to step, where it was
//   graph->run([&] { loss = ...; training.step(rate); }, [&] { training.renew(rate); });
//
// A graph repeats the work on the memory that it had. What the step has taken stays the graph's own, tensors that it
// has returned get new values with every launch, and what it reads from before must stay where it is.
#include <functional>

#include "weft/engine/tensor/error.h"

namespace weft {

// A step does what a graph cannot repeat.
struct NotRepeatable : Error {
  using Error::Error;
};

class StepGraph {
 public:
  virtual ~StepGraph() = default;

  // Does one step. The first two calls capture what `step` asks of the card; plain steps before them have shown what
  // memory that takes. NotRepeatable if it waits for the card, copies to the host, takes new memory from the system,
  // frees what it had before, or uploads other values the second time. Later calls call `renew` instead, which repeats
  // the calls of Backend::update with the scalars of this step; all else in it has no effect.
  virtual void run(const std::function<void()>& step, const std::function<void()>& renew) = 0;
};

}  // namespace weft
