// SPDX-License-Identifier: Apache-2.0
// A small training program for launch.py: a network learns the sum of its inputs.
#include <cmath>
#include <csignal>
#include <thread>

#include "apps/shared/report/picture.h"
#include "apps/shared/run/ahead.h"
#include "apps/shared/run/run.h"
#include "tests/support/beyond_memory.h"
#include "weft/data/batches.h"
#include "weft/data/idx.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/parallel/data_parallel.h"

using namespace weft;

namespace {

constexpr int64_t samples = 96, batch_size = 12, features = 5;

struct Settings : Options {
  std::string fault = "none";
  int64_t at = 0, pause = 0;
};

Tensor inputs(std::span<const int64_t> chosen, DType dtype) {
  Tensor x({static_cast<int64_t>(chosen.size()), features}, dtype);
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    const Random key{7, static_cast<uint64_t>(chosen[static_cast<size_t>(i)])};
    x.slice(i, i + 1).copy_from(Tensor::uniform({1, features}, key, -1, 1, dtype));
  }
  return x;
}

bool is_last(const Launch& rank) { return rank.comm.rank().value == rank.comm.size() - 1; }

// So that this rank dies while it waits for the others in its next collective.
void die_in_next_collective(bool last) {
  if (last)
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::raise(SIGKILL);
    }).detach();
  else
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

void fail_if_asked(const Settings& settings, const Launch& rank, int64_t step) {
  if (settings.at != step) return;
  const bool last = is_last(rank);
  if (settings.fault == "missing") throw MissingInput("data are missing: apt-get install data");
  if (settings.fault == "missing_on_one" && last) throw MissingInput("data are missing on one rank");
  if (settings.fault == "missing_on_one") std::this_thread::sleep_for(std::chrono::seconds(2));
  if (settings.fault == "one" && last) throw std::runtime_error("one rank has had enough");
  if (settings.fault == "kill" && last) std::raise(SIGKILL);
  if (settings.fault == "crash" && last) std::raise(SIGSEGV);
  if (settings.fault == "crash_of_no_rank" && last) std::thread([] { std::raise(SIGSEGV); }).join();
  if (settings.fault == "kill_in_collective") die_in_next_collective(last);
  if (settings.fault == "stop" && last) std::raise(SIGTERM);
  if (settings.fault == "memory" && last) Tensor::zeros({beyond_memory});
}

void train(const Launch& rank, const Settings& settings) {
  const Init init = settings.init(Device::cpu);
  if (batch_size < rank.comm.size()) throw WrongOption("a batch of 12 samples is too small for that many ranks");
  Mlp network("network", {features, 16, 1}, init);
  DataParallel training({{network.parameters(), AdamW{}}}, rank.comm,
                        {.stage = static_cast<int>(settings.training.stage)});
  TrainingState state(rank.comm);
  state.add(training.optimizer());
  Batches batches(samples, batch_size, init.key.seed);

  Run run(rank, batches, {.title = "Sums", .charts = {{"Loss", {"loss"}}, {"Rate", {"rate"}}}});
  const auto probe = [&](const char* when) {  // takes some time
    run.note(std::string("probes ") + when);
    if (settings.fault == when) std::this_thread::sleep_for(std::chrono::seconds(20));
  };
  probe("before");
  run.begin(state);
  const HookHandle hook = training.gradients().after_accumulate([&](const Parameter&, const Tensor&) {
    if (settings.at != run.steps_done() || !is_last(rank)) return;
    if (settings.fault == "kill_in_hook") std::raise(SIGKILL);
    if (settings.fault == "one_in_hook") throw std::runtime_error("a hook has had enough");
  });
  const auto make = [&, drawn = batches, step = run.steps_done()]() mutable {
    if (settings.fault == "data" && settings.at == step++ && is_last(rank))
      throw MissingInput("one rank's data are gone");
    const std::span<const int64_t> batch = drawn.next();
    const size_t r = static_cast<size_t>(rank.comm.rank().value), n = static_cast<size_t>(rank.comm.size());
    const size_t begin = batch.size() * r / n, end = batch.size() * (r + 1) / n;
    return inputs(batch.subspan(begin, end - begin), init.dtype);
  };
  Ahead<Tensor> ahead(make, true);
  while (run.running()) {
    fail_if_asked(settings, rank, run.steps_done());
    std::this_thread::sleep_for(std::chrono::milliseconds(settings.pause));
    batches.next();
    const Tensor x = run.data([&] { return ahead.next(); });
    Tape tape;
    const Var in = tape.constant(x), error = sum(network(in), 1) - sum(in, 1);
    const bool broken = settings.fault == "nan" && settings.at == run.steps_done();
    const Var share = sum(square(error)) * (broken ? std::nan("") : 1.0 / batch_size);
    tape.backward(share, training.gradients());
    const double rate = 0.01;
    training.step(rate);
    run.step(batch_size, {{"loss", share.value().item()}}, {{"rate", rate}});
  }
  if (run.stopped()) return;
  probe("after");
  run.picture("noise", "Noise", as_pixels(Tensor::uniform({8, 8}, {1})));
  run.finish({});
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.steps = 40;
  CommandLine line("sums", "Learns to add.", settings);
  line.add("--fault", settings.fault, "what goes wrong",
           {"none", "missing", "missing_on_one", "one", "one_in_hook", "kill", "kill_in_hook", "kill_in_collective",
            "stop", "nan", "crash", "crash_of_no_rank", "memory", "data", "before", "after"});
  line.add("--at", settings.at, "the steps done before", {0, 1000});
  line.add("--pause", settings.pause, "milliseconds before each step", {0, 1000});
  return launch(line, argc, argv, [&](const Launch& rank) { train(rank, settings); });
}
