// SPDX-License-Identifier: Apache-2.0
// Hooks on gradients: after a parameter's gradient is complete on this rank, after a backward, before the sum over
// ranks, and after it. A handle removes its hook. Prints the events of rank 0 in their order. Checks the order, and
// that the sum after the reduction is the sum of the values before it.
#include <iostream>

#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

void watch_events(Communicator& comm) {
  Parameter first("first", Tensor::from({1}, {2})), second("second", Tensor::from({1}, {3}));
  DataParallel training({{{&first, &second}, Sgd{}}}, comm);
  std::vector<std::string> events;
  Tensor local, sums;

  HookHandle arrivals = training.gradients().after_accumulate([&](const Parameter& parameter, const Tensor& gradient) {
    events.push_back(parameter.name + " has " + text(gradient.item()));
  });
  training.gradients().after_backward([&] { events.push_back("backward is done"); });
  training.sync().before_reduce([&](Range, const Tensor& mine) {
    events.push_back("before the sum over ranks");
    local = mine.clone();
  });
  training.sync().after_reduce([&](Range, const Tensor& sum) {
    events.push_back("after it");
    sums = sum.clone();
  });

  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const Var mine = tape.constant(Tensor::full({1}, comm.rank().value + 1));
    const Var a = tape.watch(first), b = tape.watch(second);
    tape.backward(sum(square(a) * b * mine), training.gradients());
    training.step(0);
    require(comm.all_reduce(local).values() == sums.values(), "the sum is not that of the ranks' gradients");
    arrivals.remove();  // the second step runs without this hook
  }
  if (comm.rank() == GroupRank{0})
    for (const std::string& event : events) std::cout << event << '\n';
  const std::string share = text(4.0 * (comm.rank().value + 1)), other = text(12.0 * (comm.rank().value + 1));
  const std::vector<std::string> rest = {"backward is done", "before the sum over ranks", "after it"};
  std::vector<std::string> expected = {"second has " + share, "first has " + other};
  for (int step = 0; step < 2; ++step) expected.insert(expected.end(), rest.begin(), rest.end());
  require(events == expected, "the hooks fired in another order");
}

}  // namespace

int main() { run_ranks(3, watch_events); }
