// SPDX-License-Identifier: Apache-2.0
#pragma once
// The steps of a run. With --graph, a card repeats a captured one (engine/kernels/step_graph.h), with the same bits:
//
//   GraphSteps steps(rank, training);
//   ...
//   const Tensor share = steps.run(views.tensors(), now, alike, [&] { ...; return std::vector{share}; })[0];
#include <memory>

#include "apps/shared/launch/launch.h"
#include "weft/engine/kernels/step_graph.h"
#include "weft/optim/training.h"

namespace weft {

class GraphSteps {
 public:
  GraphSteps(const Launch& rank, Training& training);  // WrongOption if these ranks cannot have a graph

  // Calls `step`, or lets the card repeat it if it is `alike`: if it reads as many samples as others, and the host
  // needs nothing of it but the tensors that it returns, which the next step overwrites. `inputs` are what a step
  // reads; the card keeps them at one place. `rate` is that of Training::step. The first two such steps warm up: one
  // takes memory that stays, and the other all that a step takes.
  using Step = std::function<std::vector<Tensor>()>;
  std::vector<Tensor> run(const std::vector<Tensor*>& inputs, double rate, bool alike, const Step& step);

 private:
  void keep(const std::vector<Tensor*>& inputs);

  const Device device_;
  const TapeRecord* const tapes_;
  Training& training_;
  std::unique_ptr<StepGraph> graph_;  // null without --graph
  int begun_ = 0;                     // steps that warm up or are captured
  std::vector<Tensor> inputs_, results_;
};

}  // namespace weft
