// SPDX-License-Identifier: Apache-2.0
// The backward passes of cached_backward: hooks, collectives, memory and refusals.
#include "tests/support/counted_transport.h"
#include "tests/support/two_towers.h"
#include "weft/collectives/run_ranks.h"
#include "weft/optim/parallel/sync.h"

using namespace weft;

TEST_CASE("cached_backward fires hooks in the loss pass and each micro-batch pass, and announces the last") {
  run_ranks(1, [](Communicator& comm) {
    Towers towers;
    Gradients gradients;
    std::vector<std::vector<std::string>> passes(1);
    bool announced = false;
    gradients.after_accumulate([&](const Parameter& p, const Tensor&) { passes.back().push_back(p.name); });
    gradients.after_backward([&] { passes.emplace_back(); });
    CachedStep{towers, comm}(gradients, [&] {
      expect(!announced && passes.size() == 4, "announced once, before the last of four passes");
      announced = true;
    });
    expect(announced && passes.size() == 5, "one pass for the loss and three for the micro-batches");
    expect(passes[0] == std::vector<std::string>{"bias", "temperature"}, "the loss has its own parameters");
    // In the order in which backward completes them.
    const std::vector<std::string> layers = {"text.norm", "text", "image.out", "image.in"};
    for (const size_t pass : {1, 2, 3}) {
      expect(passes[pass].size() == 2 * layers.size(), "two parameters a layer, once each");
      for (size_t i = 0; i < passes[pass].size(); ++i) {
        const std::string& name = passes[pass][i];
        expect(name.substr(0, name.rfind('.')) == layers[i / 2], name);
      }
    }
  });
}

TEST_CASE("cached_backward reduces gradients once, optionally during the last pass, with the same bits", "[r33]") {
  on_ranks([](Communicator& comm) {
    Towers towers, single;
    Gradients whole;
    whole_step(single, whole, comm);
    const FlatLayout layout(towers.parameters());
    Tensor results[2];
    for (const auto when : {GradientSync::When::at_finish, GradientSync::When::in_last_pass}) {
      GradientSync sync(layout, comm, {.when = when, .bucket = 16});
      CachedStep{towers, comm}(sync.gradients(), [&] { sync.expect_last_pass(); });
      sync.finish();
      Tensor& result = results[when == GradientSync::When::in_last_pass];
      result = sync.reduced().clone();
      for (size_t p = 0; p < layout.places().size(); ++p) {
        const auto& [parameter, begin, size] = layout.places()[p];
        expect_close(result.slice(begin, begin + size).reshape(parameter->value.shape()),
                     whole[*single.parameters()[p]]);
      }
    }
    expect_same_bits(results[1], results[0]);
  });
}

TEST_CASE("cached_backward gathers features once and returns their cotangents once for any number of micro-batches") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    Towers towers;
    CachedStep step{towers, comm};
    collectives = 0;
    Gradients gradients;
    step(gradients);
    expect(collectives == 2, "a step has " + text(collectives) + " collectives");
  });
}

TEST_CASE("cached_backward replays on a rank whose loss is constant, because other ranks need it") {
  on_ranks({2, 3}, [](Communicator& comm) {
    Parameter w("w", data_of(0, {3, 2}));
    const int me = number(comm);
    const auto encode = [&](int64_t i, Tape& tape) -> Features {
      return {all_reduce(matmul(tape.constant(data_of(me, {2, 3}).slice(i, i + 1)), tape.watch(w)), comm)};
    };
    const auto loss = [&](Tape& tape, const Features& all) {
      return me == 0 ? sum(tape.constant(data_of(0, {2, 2}, 1)) * all[0]) : tape.constant(scalar(0));
    };
    Gradients gradients;
    cached_backward(2, encode, loss, gradients);
    expect_close(gradients[w], matmul(data_of(me, {2, 3}), data_of(0, {2, 2}, 1), Transpose::yes));
  });
}

TEST_CASE("cached_backward keeps the activations of one micro-batch at a time") {
  const int64_t width = 256, layers = 16, rows = 64, count = 8;
  Parameter w("w", Tensor::uniform({width, width}, {5}, -0.1, 0.1));
  const Tensor images = Tensor::uniform({count * rows, width}, {6});
  int64_t most = 0;
  const auto live = [] { return pool::statistics().live_bytes; };
  const auto encode = [&](int64_t i, Tape& tape) -> Features {
    Var x = tape.constant(images.slice(i * rows, (i + 1) * rows));
    for (int64_t layer = 0; layer < layers; ++layer) x = tanh(matmul(x, tape.watch(w)));
    most = std::max(most, live());
    return {slice(x, 1, 0, 8)};
  };
  const auto loss = [](Tape&, const Features& all) { return sum(square(all[0])); };
  // The largest memory in use at the end of an encoding beyond the initial, in units of one layer's activations.
  const auto most_of = [&](auto step) {
    Gradients gradients;
    gradients.add(w, Tensor::zeros(w.value.shape()));
    const int64_t before = live();
    most = 0;
    step(gradients);
    expect(live() - before < 1024, "everything is given back");
    return static_cast<double>(most - before) / static_cast<double>(rows * width * sizeof(float));
  };
  const double cached = most_of([&](Gradients& gradients) { cached_backward(count, encode, loss, gradients); });
  const double whole = most_of([&](Gradients& gradients) {
    Tape tape;
    Features parts;
    for (int64_t i = 0; i < count; ++i) parts.push_back(encode(i, tape)[0]);
    tape.backward(loss(tape, {concat(parts, 0)}), gradients);
  });
  CAPTURE(cached, whole);
  CHECK(whole > static_cast<double>(count * layers));
  CHECK(cached < 2 * static_cast<double>(layers) + 2);  // matmul's and tanh's results, and all features
}

TEST_CASE("cached_backward allocates no system memory after the first step") {
  run_ranks(1, [](Communicator& comm) {
    Towers towers;
    Gradients gradients;
    int64_t calls = 0;
    for (int i = 0; i < 4; ++i) {
      if (i == 2) calls = pool::statistics().system_calls;
      CachedStep{towers, comm}(gradients);
    }
    expect(pool::statistics().system_calls == calls, "the pool has grown");
  });
}

TEST_CASE("cached_backward refuses an encoding that differs when repeated, and says what to do") {
  Parameter w("w", Tensor::full({1, 2}, 0.5, DType::f64));
  uint64_t calls = 0;
  const auto backward = [&](auto change) {
    calls = 0;
    const auto encode = [&](int64_t, Tape& tape) {
      Features features = {matmul(tape.constant(Tensor::full({2, 1}, 1, DType::f64)), tape.watch(w))};
      if (calls++ >= 3) change(features);
      return features;
    };
    Gradients gradients;
    cached_backward(
        2, encode, [](Tape&, const Features& all) { return sum(all[0]); }, gradients);
  };
  expect_refusal([&] { backward([](Features& f) { f[0] = f[0] * (1 + 0x1p-52); }); },
                 {"cached_backward: set 0 of the features of micro-batch 1 had other values when it was encoded again",
                  "draw random numbers from explicit keys", "nothing that encoding changes"});
  expect_refusal([&] { backward([](Features& f) { f[0] = slice(f[0], 0, 0, 1); }); }, {"other values"});
  expect_refusal([&] { backward([](Features& f) { f.push_back(f[0]); }); },
                 {"micro-batch 1 had 1 sets of features, and 2 when it was encoded again"});
  backward([](Features&) {});
}

TEST_CASE("cached_backward refuses micro-batches that do not match") {
  Gradients gradients;
  const auto loss = [](Tape&, const Features& all) { return sum(all[0]); };
  const auto some = [](int64_t i, Tape& tape) {
    return Features(static_cast<size_t>(i), tape.constant(Tensor::full({1}, 1, DType::f64)));
  };
  expect_refusal([&] { cached_backward(0, some, loss, gradients); }, {"cached_backward: 0 micro-batches"});
  expect_refusal([&] { cached_backward(2, some, loss, gradients); }, {"micro-batch 0 has 0 sets of features"});
  const auto more = [&](int64_t i, Tape& tape) { return some(i + 1, tape); };
  expect_refusal([&] { cached_backward(2, more, loss, gradients); }, {"micro-batch 1 has 2 sets", "the first has 1"});
}
