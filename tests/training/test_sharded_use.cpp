// SPDX-License-Identifier: Apache-2.0
// The costs of sharded parameters, the freedoms of their units, and what is refused.
#include <future>

#include "tests/support/sharded_network.h"
#include "weft/collectives/checks/traffic.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/nn/sequential.h"

namespace weft {
namespace {

// The sum over all ranks once all have arrived.
template <class F> int64_t statistic(Communicator& comm, F of) {
  comm.barrier();
  const int64_t value = of(pool::statistics());
  comm.barrier();
  return value;
}

TEST_CASE("a rank holds its shard of everything, and full parameters and gradients of one unit only") {
  // Sizes that fill their blocks; one more unit in memory would exceed the margin.
  constexpr int64_t ranks = 4, units = 16, width = 247, unit = width * width * 4;
  on_ranks({ranks}, [&](Communicator& comm) {
    const auto live = [](const MemoryStatistics& s) { return s.live_bytes; };
    const auto peak = [](const MemoryStatistics& s) { return s.peak_bytes; };
    const int64_t before = statistic(comm, live);
    Deep network(units, width, Bias::no);
    Sharded sharded({{network.parameters(), AdamW{}}}, comm);
    const int64_t held = statistic(comm, live) - before, peaks_before = statistic(comm, peak);
    // A new thread, which has a peak of its own.
    std::async(std::launch::async, [&] {
      const std::vector<Sharded::Unit> units = network.units(sharded);
      for (int step = 0; step < 3; ++step) {
        Tape tape;
        tape.backward(loss_of(network(tape.constant(data(comm, width)), sharded, units)), sharded.gradients());
        sharded.step(0.01);
      }
    }).get();
    const int64_t used = held + statistic(comm, peak) - peaks_before;
    const int64_t parts = 4 * units * unit;  // values, gradients and two moments, over all ranks
    const auto near = [](int64_t bytes, int64_t formula) {
      return static_cast<double>(bytes) < 1.05 * static_cast<double>(formula);
    };
    expect(near(held, parts), std::to_string(held) + " bytes held, for parts of " + std::to_string(parts));
    const int64_t formula = parts + ranks * 2 * unit;
    expect(near(used, formula), std::to_string(used) + " bytes used, not " + std::to_string(formula));
  });
}

TEST_CASE("sharded training allocates no system memory after the first steps") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Deep network(5, 40);
    Sharded sharded({{network.parameters(), AdamW{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    const auto take_steps = [&] {
      for (int step = 0; step < 5; ++step) {
        Tape tape;
        tape.backward(loss_of(network(tape.constant(data(comm, 40)), sharded, units)), sharded.gradients());
        sharded.step(0.01, 0.1);
      }
    };
    const auto calls = [](const MemoryStatistics& s) { return s.system_calls; };
    take_steps();
    const int64_t before = statistic(comm, calls);
    take_steps();
    expect(statistic(comm, calls) == before, "the system was asked for memory");
  });
}

TEST_CASE("parameters of a unit that lie side by side are gathered together") {
  const int n = GENERATE(1, 2, 3);
  run_ranks(n, [](std::unique_ptr<Transport> transport) {
    Traffic traffic;
    Communicator comm(counted(std::move(transport), traffic));
    Deep network(3, 5);
    Sharded sharded({{network.parameters(), AdamW{}}}, comm);
    const auto gathers = [&](const std::vector<Parameter*>& parameters) {
      const int64_t before = traffic[Verb::all_gather_v].calls;
      Tape tape;
      sharded.run(sharded.unit(parameters), tape.constant(data(comm, 5)), [](const Var& x) { return x; });
      return traffic[Verb::all_gather_v].calls - before;
    };
    const std::vector<Parameter*> all = network.parameters();  // a weight and a bias of each layer
    expect(gathers(all) == 1, "one for all");
    expect(gathers({all[1], all[0]}) == 1, "one for a layer");
    expect(gathers({all[0], all[1], all[4], all[5]}) == 2, "two for the first layer and the last");
  });
}

TEST_CASE("pack leaves zeros between tensors and in place of a missing one") {
  const Packing packing = {{{1, {2}}, {4, {1, 2}}, {6, {}}}, 8};
  const Tensor pair = Tensor::from({2}, {1, 2}), row = Tensor::from({1, 2}, {3, 4}), one = Tensor::full({}, 5);
  CHECK(pack(std::vector<Var>{pair, row, one}, packing).value().values() ==
        std::vector<double>{0, 1, 2, 0, 3, 4, 5, 0});
  CHECK(pack(std::vector<Var>{{}, row, {}}, packing).value().values() == std::vector<double>{0, 0, 0, 0, 3, 4, 0, 0});
  CHECK(unpack(Tensor::arange(8, DType::f32), packing)[1].value().values() == std::vector<double>{4, 5});
  CHECK_THROWS_WITH(pack(std::vector<Var>{row, row, one}, packing), "pack: part 0 is (1, 2), its place is for (2)");
  CHECK_THROWS_WITH(pack(std::vector<Var>{pair}, packing), "pack: 1 parts for 3 places");
  CHECK_THROWS_WITH(unpack(row, packing), "unpack: (1, 2) for 8 elements");
  Tape tape;
  const Var flat = tape.watch(Tensor::arange(8, DType::f32));
  const Vars parts = unpack(flat, packing);  // a walk knows nothing of earlier ones
  const auto gradient = [&](size_t part) { return tape.gradient(sum(parts[part]), {flat})[0].value().values(); };
  CHECK(gradient(0) == std::vector<double>{0, 1, 1, 0, 0, 0, 0, 0});
  CHECK(gradient(2) == std::vector<double>{0, 0, 0, 0, 0, 0, 1, 0});
}

TEST_CASE("hooks on sharded parameters see this rank's elements once per backward and parameter") {
  on_ranks([](Communicator& comm) {
    Deep network(2, 40);
    Sharded sharded({{network.parameters(), Sgd{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    std::vector<std::string> heard;
    int64_t elements = 0;
    sharded.gradients().after_accumulate([&](const Parameter& shard, const Tensor& sum) {
      heard.push_back(shard.name);
      elements += sum.size();
    });
    Tape tape;
    const Var once = network(tape.constant(data(comm, 40)), sharded, units);
    tape.backward(loss_of(network(once, sharded, units)), sharded.gradients());
    std::sort(heard.begin(), heard.end());
    expect(heard == std::vector<std::string>{"layer0.bias", "layer0.weight", "layer1.bias", "layer1.weight"},
           "each once, though its unit was used twice");
    const Tensor all = comm.all_reduce(Tensor::full({}, static_cast<double>(elements), DType::f64));
    expect(all.item() == 2 * (40 * 40 + 40), "together the ranks have all elements");
  });
}

TEST_CASE("sharded units can be nested, be layers of a Sequential, and be evaluated on a paused tape") {
  on_ranks([](Communicator& comm) {
    Deep plain(2, 40), network(2, 40);
    const Tensor x = data(comm, 40);
    const Tensor expected = (*plain.layers[1])((*plain.layers[0])(x)).value();
    Sharded sharded({{network.parameters(), Sgd{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    Sequential layers("layers");
    for (const auto& layer : network.layers) layers.add<ShardedLayer>(*layer, sharded);
    {
      Tape tape;
      const Tape::Pause pause(&tape);
      expect_same_bits(layers(tape.constant(x)).value(), expected);
    }
    Tape flat, nested;
    flat.backward(loss_of(layers(flat.constant(x))), sharded.gradients());
    const Tensor gradient = sharded.gradient_of(*network.parameters()[0]).clone();
    sharded.discard();
    const auto both = [&](const Var& x) {
      return (*network.layers[1])(sharded.run(units[0], x, [&](const Var& x) { return (*network.layers[0])(x); }));
    };
    const Var y = sharded.run(units[1], nested.constant(x), both);
    expect_same_bits(y.value(), expected);
    nested.backward(loss_of(y), sharded.gradients());
    expect_same_bits(sharded.gradient_of(*network.parameters()[0]), gradient);
  });
}

TEST_CASE("a gradient query for sharded parameters adds nothing to the next step") {
  on_ranks([](Communicator& comm) {
    Deep plain(2, 40, Bias::yes, DType::f64), network(2, 40, Bias::yes, DType::f64);
    Sharded sharded({{network.parameters(), AdamW{}}}, comm);
    Tape mine, whole;
    const Var x = mine.watch(data(comm, 40, DType::f64)), same = whole.watch(data(comm, 40, DType::f64));
    const Var loss = loss_of(network(x, sharded, network.units(sharded)));
    const Var expected = whole.gradient(loss_of((*plain.layers[1])((*plain.layers[0])(same))), {same})[0];
    expect_same_bits(mine.gradient(loss, {x})[0].value(), expected.value());
    expect(sharded.step(1, 1) == 0, "there is a gradient");
    const std::vector<Parameter*> mine_all = network.parameters(), whole_all = plain.parameters();
    for (size_t i = 0; i < mine_all.size(); ++i) expect_same_bits(sharded.whole(*mine_all[i]), whole_all[i]->value);
  });
}

TEST_CASE("full values of a sharded parameter can be set without changing other parameters' master weights") {
  on_ranks({1, 3, 8}, [](Communicator& comm) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Deep network(2, 60, Bias::yes, dtype);
      Sharded sharded({{network.parameters(), Sgd{}}}, comm);
      const auto take_step = [&](double rate) {
        Tape tape;
        const Var y = network(tape.constant(data(comm, 60, dtype)), sharded, network.units(sharded));
        tape.backward(loss_of(y), sharded.gradients());
        sharded.step(rate);
      };
      take_step(0.001);
      const Tensor before = sharded.optimizer().values().clone(), fresh = Tensor::normal({60, 60}, {9}, 0, 1, dtype);
      Parameter& weight = network.layers[1]->weight;
      sharded.set(weight, fresh);
      take_step(0);
      expect_same_bits(sharded.whole(weight), fresh);
      const FlatLayout& layout = sharded.optimizer().parameters().layout();
      const Range owned = sharded.optimizer().owned();
      const int64_t untouched = intersection(owned, layout.places()[2].range()).first - owned.first;
      expect_same_bits(sharded.optimizer().values().slice(0, untouched), before.slice(0, untouched));
    }
  });
}

TEST_CASE("using a sharded parameter outside of its unit is refused, with and without a tape") {
  on_ranks([](Communicator& comm) {
    Deep network(2, 40), foreign(1, 40);
    Sharded sharded({{network.parameters(), Sgd{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    Linear &first = *network.layers[0], &second = *network.layers[1];
    Tape tape;
    const Var x = tape.constant(data(comm, 40));
    expect_refusal([&] { first(x); }, {"watch", "no values here"});
    expect_refusal([&] { first(data(comm, 40)); }, {"u8"});
    const auto in_another = [&](const Var& x) { return second(x); };
    expect_refusal([&] { sharded.run(units[0], x, in_another); }, {"watch", "no values here"});
    network(x, sharded, units);
    expect_refusal([&] { first(x); }, {"watch", "no values here"});
    expect_refusal([&] { sharded.run(units[0], data(comm, 40), [](const Var& x) { return x; }); }, {"on no tape"});
    expect_refusal([&] { sharded.unit(foreign.parameters()); }, {"layer0.weight is not among"});
    expect_refusal([&] { Optimizer(network.parameters(), Sgd{}); }, {"layer0.weight has no values here"});
    const auto itself = [&](const Var& x) { return sharded.run(units[0], x, [](const Var& x) { return x; }); };
    expect_refusal([&] { sharded.run(units[0], x, itself); }, {"layer0.weight is in use already"});
    // After all these errors, tape and units still work.
    tape.backward(loss_of(network(x, sharded, units)), sharded.gradients());
  });
}

TEST_CASE("a sharded value that changes between forward and backward, or differs between ranks, is detected") {
  on_ranks({2, 3}, [](Communicator& comm) {
    Deep network(1, 60);
    Sharded sharded({{network.parameters(), Sgd{}}}, comm);
    const std::vector<Sharded::Unit> units = network.units(sharded);
    Tape tape, other;
    const Var loss = loss_of(network(tape.constant(data(comm, 60)), sharded, units));
    other.backward(loss_of(network(other.constant(data(comm, 60)), sharded, units)), sharded.gradients());
    sharded.step(0.1);
    expect_refusal([&] { tape.backward(loss, sharded.gradients()); }, {"was changed in place"});

    Parameter parameter("p", Tensor::full({3}, number(comm)));
    expect_refusal([&] { Sharded({{{&parameter}, Sgd{}}}, comm); }, {"sharded: 'p' should be equal on all ranks"});
  });
}

TEST_CASE("a sharded unit that only some ranks run ends the program with an error") {
  const auto only_the_first = [](Communicator& comm) {
    Deep network(1, 40);
    Sharded sharded({{network.parameters(), Sgd{}}}, comm);
    Tape tape;
    if (number(comm) == 0) network(tape.constant(data(comm, 40)), sharded, network.units(sharded));
    sharded.step(0.1);
  };
  CHECK_THROWS_WITH(run_ranks(2, only_the_first), Catch::Contains("all_gather_v"));
}

}  // namespace
}  // namespace weft
