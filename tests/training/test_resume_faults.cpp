// SPDX-License-Identifier: Apache-2.0
// Failures to save a training, and to resume from what is there.
#include "tests/support/scratch_folder.h"
#include "tests/training/resume_run.h"
#include "weft/collectives/checks/agreement.h"

namespace weft {
namespace {

// Expects f to throw an Error on all ranks with the same text, which contains all of these.
template <class F>
void expect_common_refusal(Communicator& comm, F f, std::initializer_list<const char*> said, Site site = Site::here()) {
  const std::string message = expect_refusal(f, said, site);
  for (const std::string& other : all_texts(message, comm, site))
    expect(other == message, message + "\n  is on another rank: " + other, site);
}

TEST_CASE("a training state that does not fit is refused with one error on all ranks, and nothing is changed") {
  const ScratchFolder folder;
  on_ranks({1, 3}, [&](Communicator& comm) {
    const auto path = folder / std::to_string(comm.size());
    for (const int stage : {1, 3}) {
      const auto file = path / std::to_string(stage);
      ResumeRun saved(comm, {.stage = stage});
      saved.steps(1);
      saved.save(file);
      ResumeRun other_rule(comm, {.stage = stage, .rule = Sgd{.momentum = 0.9}});
      ResumeRun other_width(comm, {.stage = stage, .width = 40});
      ResumeRun other_type(comm, {.stage = stage, .dtype = DType::f32});
      const auto expect_refusal = [&](ResumeRun& run, std::initializer_list<const char*> said) {
        run.steps(1);
        const NamedTensors before = run.local();
        const Metadata words = run.words();
        expect_common_refusal(
            comm, [&] { run.load(file); }, said);
        expect_same(run.local(), before);
        expect(run.words() == words, "the words have changed");
      };
      expect_refusal(other_rule, {"first.weight.sgd.velocity: is missing in the file",
                                  "first.weight.adamw.m: is in the file, but not asked for",
                                  "last.bias.adamw.v: is in the file, but not asked for"});
      expect_refusal(other_width, {"first.weight: is f64 (5, 300) in the file, not f64 (5, 40)",
                                   "last.weight.adamw.v: is f64 (300, 3) in the file, not f64 (40, 3)",
                                   "norm.running_mean: is f64 (300) in the file, not f64 (40)"});
      expect_refusal(other_type, {"first.weight: is f64 (5, 300) in the file, not f32 (5, 300)"});
    }
  });
}

TEST_CASE("the error about a training state lists missing and surplus slots and averages") {
  const ScratchFolder folder;
  on_ranks({2}, [&](Communicator& comm) {
    ResumeRun plain(comm, {.stage = 3, .rule = Sgd{}}), averaged(comm, {.stage = 2, .rule = Sgd{.momentum = 0.9}});
    plain.save(folder / "plain");
    averaged.save(folder / "averaged");
    expect_common_refusal(comm, [&] { averaged.load(folder / "plain"); },
                          {"rare.weight.sgd.velocity: is missing", "rare.weight.average: is missing"});
    expect_common_refusal(comm, [&] { plain.load(folder / "averaged"); },
                          {"rare.bias.sgd.velocity: is in the file, but", "rare.bias.average: is in the file, but"});
  });
}

TEST_CASE("a crash while a checkpoint is written loses only the steps since the previous one") {
  const ScratchFolder folder;
  on_ranks({1, 3}, [&](Communicator& comm) {
    const auto path = folder / std::to_string(comm.size());
    ResumeRun undisturbed(comm, {.stage = 1}), crashed(comm, {.stage = 1}), resumed(comm, {.stage = 1, .seed = 6});
    crashed.steps(4);
    crashed.save(path);
    crashed.steps(3);
    crashed.save(path);
    if (number(comm) == 0) {
      const auto file = path / "step-000007.safetensors";
      put(file, contents(file).substr(0, 10'000));
      put(path / "step-000009.safetensors.1-1.weft-tmp", "half a file");
    }
    comm.barrier();
    expect(resumed.load(path), "there is a checkpoint before");
    expect(resumed.words().at("step") == "4", "not that of step 4");
    resumed.steps(3);
    resumed.save(path);  // replaces the damaged one
    resumed.steps(1);
    undisturbed.steps(8);
    expect_same(resumed.local(), undisturbed.local());
  });
}

TEST_CASE("loading from an empty folder leaves a new training unchanged") {
  const ScratchFolder folder;
  on_ranks({1, 2}, [&](Communicator& comm) {
    ResumeRun run(comm, {.stage = 2}), untouched(comm, {.stage = 2});
    run.steps(2);
    untouched.steps(2);
    expect(!run.load(folder / "nothing"), "there is nothing");
    expect_same(run.local(), untouched.local());
    expect(run.words() == untouched.words(), "the words have changed");
  });
}

TEST_CASE("a failure to write or read a training state is reported on all ranks, which can continue") {
  const ScratchFolder folder;
  on_ranks({1, 3}, [&](Communicator& comm) {
    for (const int stage : {0, 3}) {
      ResumeRun run(comm, {.stage = stage}), untouched(comm, {.stage = stage});
      for (const size_t after : {0, 1, 5}) {
        expect_common_refusal(comm,
                              [&] {
                                run.state().save([&](const TensorSource& get) {
                                  for (size_t i = 0; i < after; ++i) get(i);
                                  fail({"the disk is full"});
                                });
                              },
                              {"the disk is full"});
        expect_common_refusal(
            comm, [&] { run.state().load([&](const TensorSink&) -> Metadata { fail({"the disk is gone"}); }); },
            {"the disk is gone"});
      }
      const auto path = folder / std::to_string(10 * comm.size() + stage);
      run.steps(1);
      run.save(path);
      untouched.steps(1);
      expect_same(run.local(), untouched.local());
      expect_common_refusal(comm,
                            [&] {
                              run.state().load([&](const TensorSink& put) -> Metadata {
                                put(0, latest_checkpoint(path).file->read(run.state().tensors()[0].name));
                                return {};
                              });
                            },
                            {"only 1 of", "tensors were put in"});
      expect_common_refusal(comm,
                            [&] {
                              run.state().load([&](const TensorSink& put) -> Metadata {
                                put(0, Tensor::zeros({2}));
                                return {};
                              });
                            },
                            {"training state: first.weight is f64 (5, 300), not f32 (2)"});
    }
  });
}

TEST_CASE("a tape recorded before a state was loaded is refused on every rank") {
  const ScratchFolder folder;
  on_ranks({1, 3}, [&](Communicator& comm) {
    for (const int stage : {0, 1}) {
      const auto path = folder / std::to_string(10 * comm.size() + stage);
      ResumeRun run(comm, {.stage = stage});
      run.save(path);
      run.steps(1);
      Tape tape;
      const Var weight = tape.watch(*run.parameters()[0]);
      run.load(path);
      expect_refusal([&] { weight.value(); }, {"changed in place"});
    }
  });
}

TEST_CASE(
    "a training state refuses parts that could not be restored: duplicate names, partial averages, differing ranks") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Parameter a("a", Tensor::zeros({5})), twin("a", Tensor::zeros({5})), b("b", Tensor::zeros({2000}));
    TrainingState twice(comm);
    twice.add({&a, &b});
    expect_refusal([&] { twice.add({&twin}); }, {"two tensors are called a"});
    Optimizer optimizer({&a, &b}, Adam{});
    TrainingState state(comm);
    WeightAverage short_one(optimizer.parameters(), {0, 1024});
    expect_refusal([&] { state.add(optimizer, &short_one); }, {"an average of 1024 elements", "owns 2048"});
  });
  on_ranks({2, 3}, [](Communicator& comm) {
    Parameter a("a", Tensor::zeros({5})), b("b", Tensor::zeros({5})), c("c", Tensor::zeros({5000}));
    TrainingState state(comm);
    if (number(comm) == 1)
      state.add({&b, &a});
    else
      state.add({&a, &b});
    expect_common_refusal(comm, [&] { state.save([](const TensorSource&) {}); },
                          {"rank 1 has added other tensors than rank 0, or in another order"});
    const FlatParameters flat({&c});
    Optimizer partial(flat, {{{&c}, Adam{}}}, {0, 1024 * (1 + number(comm))});
    expect_common_refusal(comm, [&] { state.add(partial); }, {"what the ranks own is not all of c.adam.m"});
  });
}

TEST_CASE("metadata of any characters is restored on every rank from any root") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    TrainingState state(comm, {comm.size() - 1});
    const Metadata words = {{"", "empty key"}, {"key", ""}, {"a b", std::string("1 2\n\0 3", 7)}, {"ü", "12 ü"}};
    const Metadata got = state.load([&](const TensorSink&) { return words; });
    expect(got == words, "other words");
  });
}

TEST_CASE("batches resume from their position in any epoch") {
  Batches all(10, 4, 3);
  for (int drawn = 0; drawn < 10; ++drawn) {
    Batches resumed(10, 4, 3);
    resumed.next();
    resumed.seek(all.position());
    CHECK(resumed.position() == all.position());
    Batches copy = all;
    for (int i = 0; i < 5; ++i) {
      const std::span<const int64_t> a = resumed.next(), b = copy.next();
      CHECK(std::vector(a.begin(), a.end()) == std::vector(b.begin(), b.end()));
    }
    const Epoch epoch(10, 4, 3, static_cast<uint64_t>(drawn / 3));
    const std::span<const int64_t> next = all.next(), expected = epoch.batch(drawn % 3);
    CHECK(std::vector(next.begin(), next.end()) == std::vector(expected.begin(), expected.end()));
  }
}

TEST_CASE("a position in a different sequence of batches is refused") {
  Batches batches(10, 4, 3);
  CHECK(batches.position() == "epoch 0 batch 0 of 10 samples, 4 at a time, seed 3");
  for (const Batches& other : {Batches(11, 4, 3), Batches(10, 5, 3), Batches(10, 4, 2)})
    CHECK_THROWS_WITH(batches.seek(other.position()), Catch::Contains("not in 10 samples, 4 at a time, seed 3"));
  for (const char* damaged : {"", "epoch 0 batch 4 of 10 samples, 4 at a time, seed 3",
                              "epoch 0 batch -1 of 10 samples", "epoch x batch 0 of 10 samples, 4 at a time, seed 3"})
    CHECK_THROWS_WITH(batches.seek(damaged), Catch::Contains("is no position"));
  CHECK_THROWS_WITH(Batches(0, 4, 3), Catch::Contains("no samples"));
}

}  // namespace
}  // namespace weft
