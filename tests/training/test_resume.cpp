// SPDX-License-Identifier: Apache-2.0
// A resumed training is bit-identical to an uninterrupted one, on any number of ranks.
#include <algorithm>

#include "tests/support/scratch_folder.h"
#include "tests/training/resume_run.h"
#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/transports/forwarding_transport.h"

namespace weft {
namespace test_resume {

constexpr int half = 10;

std::string title(const ResumeSetup& setup) {
  return "stage " + std::to_string(setup.stage) + ", " + text(setup.dtype) + ", " + name(setup.rule);
}

TEST_CASE("a run resumed from a checkpoint after ten of twenty steps ends with bit-identical weights") {
  const auto check = [](int ranks, const ResumeSetup& setup) {
    INFO(title(setup));
    const ScratchFolder folder;
    on_ranks({ranks}, [&](Communicator& comm) { expect_undisturbed(comm, setup, half, folder.path); });
  };
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) check(3, {stage, dtype});
  for (const Rule& rule :
       std::initializer_list<Rule>{Sgd{}, Sgd{.momentum = 0.9}, Adam{}, Adam{.amsgrad = true}, Lars{}, Lamb{}})
    check(2, {3, DType::f32, rule});
  for (const Rule& rule : std::initializer_list<Rule>{Muon{}, Adafactor{}})
    for (const int stage : {0, 1, 3}) check(3, {stage, DType::bf16, rule});
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) check(1, {ResumeSetup::alone, dtype});
}

TEST_CASE("ranks without shared memory resume with bit-identical weights") {
  const ScratchFolder folder;
  for (const int stage : {1, 3})
    CHECK_NOTHROW(run_ranks(3, [&](std::unique_ptr<Transport> threads) {
      Communicator comm(std::make_unique<ForwardingTransport>(std::move(threads)));
      expect_undisturbed(comm, {stage}, half, folder / std::to_string(stage));
    }));
}

// The full state of a run at stage 0, where every rank has everything.
struct Truth {
  NamedTensors tensors;
  Metadata words;
};
// Trains on a number of ranks, from the beginning or from the state of another run, which is copied directly.
Truth trained(int ranks, const ResumeSetup& setup, int steps, const Truth* from = nullptr) {
  Truth result;
  run_ranks(ranks, [&](Communicator& comm) {
    ResumeRun run(comm, {.dtype = setup.dtype, .rule = setup.rule});
    if (from) run.set_whole(from->tensors, from->words);
    run.steps(steps);
    if (number(comm) == 0) result = {run.whole(), run.words()};
  });
  return result;
}

const Tensor& find(const NamedTensors& tensors, const std::string& name) {
  for (const auto& [other, tensor] : tensors)
    if (other == name) return tensor;
  fail({"there is no ", name});
}

// Stage 3 keeps no average.
void expect_file(const std::filesystem::path& folder, const Truth& truth, bool averages) {
  const Latest latest = latest_checkpoint(folder);
  size_t expected = 0;
  for (const auto& [name, tensor] : truth.tensors) {
    if (name.ends_with(".average") && !averages) continue;
    ++expected;
    expect_same_bits(latest.file->read(name), tensor);
  }
  expect(latest.file->tensors().size() == expected, "the file holds something else besides");
  for (const auto& [key, word] : truth.words) expect(latest.file->metadata(key) == word, key);
}

// This rank's part of the state, without TrainingState.
void expect_parts(ResumeRun& run, const Truth& truth) {
  for (const Optimizer::State& state : run.optimizer().state()) {
    const Tensor& all = find(truth.tensors, state.parameter->name + "." + state.name);
    expect_same_bits(state.values, all.reshape({all.size()}).slice(state.first, state.first + state.values.size()));
  }
  for (const Parameter* p : run.parameters()) {
    expect_same_bits(run.sharded() ? run.sharded()->whole(*p) : p->value, find(truth.tensors, p->name));
    const double steps = find(truth.tensors, p->name + ".steps").item();
    expect(static_cast<double>(run.optimizer().steps(*p)) == steps, p->name + " has done other steps");
  }
  for (const Parameter* buffer : run.buffers()) expect_same_bits(buffer->value, find(truth.tensors, buffer->name));
  expect(run.words() == truth.words, "another place in the data");
}

double difference(const Truth& actual, const Truth& expected) {
  double most = 0;
  for (const auto& [name, tensor] : expected.tensors) {
    const std::vector<double> a = find(actual.tensors, name).values(), b = tensor.values();
    for (size_t i = 0; i < b.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / (1 + std::abs(b[i])));
  }
  return most;
}

constexpr int max_ranks = 4, few = 4;  // number of steps: an odd one, and a new epoch within

// Saves on `ranks` at every stage, and resumes on every number of ranks and at another stage. A file of stage 3 and one
// of another stage differ, because of averages.
void expect_resumable(int ranks, DType dtype, const Rule& rule = ResumeSetup().rule) {
  const Truth truth = trained(ranks, {.dtype = dtype, .rule = rule}, few);
  const ScratchFolder folder;
  const auto saved_at = [&](int stage) { return folder / std::to_string(stage); };
  for (int stage = 0; stage <= 3; ++stage) {
    on_ranks({ranks}, [&](Communicator& comm) {
      ResumeRun run(comm, {stage, dtype, rule});
      run.steps(few);
      run.save(saved_at(stage));
    });
    CHECK_NOTHROW(expect_file(saved_at(stage), truth, stage < 3));
  }
  for (int others = 1; others <= max_ranks; ++others) {
    const Truth moved = trained(others, {.dtype = dtype, .rule = rule}, few, &truth);
    for (int stage = 0; stage <= 3; ++stage) {
      const int then = stage == 3 ? 3 : (stage + others) % 3;
      INFO("saved on " << ranks << " at stage " << stage << ", resumed at stage " << then);
      on_ranks({others}, [&](Communicator& comm) {
        ResumeRun run(comm, {.stage = then, .dtype = dtype, .rule = rule, .seed = 6});
        run.load(saved_at(stage));
        expect_parts(run, truth);
        run.steps(few);
        expect_parts(run, moved);
      });
    }
  }
}

TEST_CASE("a checkpoint of any number of ranks resumes on any other, as if the state were copied by hand") {
  for (const DType dtype : {DType::f64, DType::f32})
    for (int ranks = 1; ranks <= max_ranks; ++ranks) expect_resumable(ranks, dtype);
  for (const Rule& rule : std::initializer_list<Rule>{Muon{}, Adafactor{}, AdamW{.amsgrad = true}})
    expect_resumable(3, DType::f32, rule);
}

TEST_CASE("changing the number of ranks changes a training only by rounding") {
  const Truth undisturbed = trained(1, {}, 2 * half);
  for (int before = 1; before <= max_ranks; ++before) {
    const Truth middle = trained(before, {}, half);
    for (int after = 1; after <= max_ranks; ++after)
      CHECK(difference(trained(after, {}, half, &middle), undisturbed) < 1e-12);
  }
}

}  // namespace test_resume
}  // namespace weft
