// SPDX-License-Identifier: Apache-2.0
// Steps and norms do not depend on how flat memory is sharded over ranks.
#include <deque>
#include <optional>

#include "tests/support/on_ranks.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace test_optim_sharding {

using Marks = std::vector<bool>;
const std::vector<Shape> shapes = {{30, 50}, {50}, {}, {1024}, {7}, {3000}, {0}, {1}, {129, 9}};
const Marks all_marks(shapes.size(), true);

struct Rank {
  std::deque<Parameter> parameters;
  std::optional<Optimizer> optimizer;

  // Two groups that alternate, so that runs of equal settings have several lengths.
  Rank(DType dtype, const Rule& first, const Rule& second, std::optional<Range> owned = {}, Combine combine = {}) {
    std::vector<Parameter*> all;
    std::vector<ParameterGroup> groups = {{{}, first}, {{}, second, 0.5}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      parameters.emplace_back("p" + std::to_string(i), Tensor::normal(shapes[i], {3, i}, 0, 1, dtype));
      all.push_back(&parameters.back());
      groups[i % 5 == 0].parameters.push_back(all.back());
    }
    FlatParameters flat(all);
    const Range range = owned.value_or(flat.layout().all());
    optimizer.emplace(flat, groups, range, std::move(combine));
  }
  const FlatLayout& layout() const { return optimizer->parameters().layout(); }
  Tensor owned_values() const {
    return optimizer->parameters().flat().slice(optimizer->owned().first, optimizer->owned().last);
  }
};

FlatMemory gradients_of(const FlatLayout& layout, DType dtype, int step) {
  FlatMemory gradients(layout, dtype);
  for (size_t i = 0; i < shapes.size(); ++i) {
    Tensor view = gradients.view(static_cast<int64_t>(i));
    view.copy_from(Tensor::normal(shapes[i], {5, 100 * static_cast<uint64_t>(step) + i}, 0, 1, dtype));
  }
  return gradients;
}
Marks marks_of(int step) {
  Marks marks = all_marks;
  for (size_t i = 0; i < marks.size(); ++i) marks[i] = (i + static_cast<size_t>(step)) % 4 != 0;
  return marks;
}
Tensor part(const FlatMemory& memory, Range range) { return memory.flat().slice(range.first, range.last); }

struct Case {
  const char* name;
  Rule first, second;
};
const std::vector<Case> cases = {{"sgd", Sgd{}, Sgd{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
                                 {"amsgrad", Adam{.amsgrad = true}, Adam{.beta1 = 0.8, .beta2 = 0.9}},
                                 {"adam", Adam{.weight_decay = 0.1}, Adam{.beta1 = 0.8}},
                                 {"adamw", AdamW{}, AdamW{.beta1 = 0.8, .weight_decay = 0}},
                                 {"lars", Lars{.weight_decay = 0.1}, Lars{.adapt = false}},
                                 {"lamb", Lamb{}, Lamb{.adapt = false}}};

// The parameters after five steps with some gradients missing.
void take_steps(Rank& rank, DType dtype) {
  for (int step = 0; step < 5; ++step) {
    const FlatMemory gradients = gradients_of(rank.layout(), dtype, step);
    rank.optimizer->step(part(gradients, rank.optimizer->owned()), marks_of(step), 0.01, 0.5);
  }
}
Combine over(Communicator& comm) {
  return [&comm](Tensor& sums) { comm.all_reduce(sums, sums); };
}

TEST_CASE("optimizer steps give the same bits however flat memory is sharded") {
  for (const auto& [name, first, second] : cases)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      INFO(name << " " << text(dtype));
      Rank whole(dtype, first, second);
      take_steps(whole, dtype);
      on_ranks({1, 2, 3, 5, 8}, [&, &first = first, &second = second](Communicator& comm) {
        const Range owned = whole.layout().part(number(comm), comm.size());
        Rank rank(dtype, first, second, owned, over(comm));
        take_steps(rank, dtype);
        expect_same_bits(rank.owned_values(), part(whole.optimizer->parameters(), owned));
        for (const Parameter& parameter : rank.parameters)
          expect(rank.optimizer->steps(parameter) > 0, parameter.name + " has made steps on every rank");
      });
    }
}

TEST_CASE("a rank's shard can be empty, or all but one block") {
  Rank whole(DType::f32, Lamb{}, Lamb{});
  take_steps(whole, DType::f32);
  const int64_t end = whole.layout().padded_size();
  const std::vector<Range> cuts = {{0, 0}, {0, 1024}, {1024, 1024}, {1024, end}, {end, end}};
  on_ranks({5}, [&](Communicator& comm) {
    const Range owned = cuts[static_cast<size_t>(number(comm))];
    Rank rank(DType::f32, Lamb{}, Lamb{}, owned, over(comm));
    take_steps(rank, DType::f32);
    expect_same_bits(rank.owned_values(), part(whole.optimizer->parameters(), owned));
  });
}

TEST_CASE("norms are correct, and partial norms have the same bits however memory is sharded") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    INFO(text(dtype));
    Tensor pieces;
    Rank whole(dtype, AdamW{}, AdamW{}, {}, [&](Tensor& sums) { pieces = sums.clone(); });
    const FlatMemory gradients = gradients_of(whole.layout(), dtype, 0);
    const double expected = whole.optimizer->norm(gradients.flat(), all_marks);
    double plain = 0;
    for (const double g : gradients.flat().values()) plain += g * g;
    CHECK(expected == Approx(std::sqrt(plain)).epsilon(1e-13));
    on_ranks({1, 2, 3, 5, 8}, [&](Communicator& comm) {
      const Range owned = whole.layout().part(number(comm), comm.size());
      const auto combine = [&](Tensor& sums) {
        comm.all_reduce(sums, sums);
        expect_same_bits(sums, pieces);
      };
      Rank rank(dtype, AdamW{}, AdamW{}, owned, combine);
      expect(rank.optimizer->norm(part(gradients, owned), all_marks) == expected, "the norm has other bits");
    });
  }
}

TEST_CASE("gradients by parameter give an optimizer step the same bits as gradients in flat memory") {
  for (const auto& [name, first, second] : cases)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      INFO(name << " " << text(dtype));
      Rank flat(dtype, first, second), single(dtype, first, second);
      take_steps(flat, dtype);
      for (int step = 0; step < 5; ++step) {
        const FlatMemory memory = gradients_of(single.layout(), dtype, step);
        Gradients gradients;
        for (size_t i = 0; i < shapes.size(); ++i)
          if (marks_of(step)[i]) gradients.add(single.parameters[i], memory.view(static_cast<int64_t>(i)).clone());
        CHECK(single.optimizer->norm(gradients) == flat.optimizer->norm(memory.flat(), marks_of(step)));
        single.optimizer->step(gradients, 0.01, 0.5);
      }
      CHECK_NOTHROW(expect_same_bits(single.owned_values(), flat.owned_values()));
    }
}

TEST_CASE("the padding of flat memory stays zero") {
  for (const auto& [name, first, second] : cases)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      INFO(name << " " << text(dtype));
      Rank rank(dtype, first, second);
      take_steps(rank, dtype);
      std::vector<double> values = rank.owned_values().values();
      for (const Place& place : rank.layout().places()) std::fill_n(values.begin() + place.begin, place.size, 0.0);
      CHECK(values == std::vector<double>(values.size()));
    }
}

TEST_CASE("parameters in flat memory but in no group stay unchanged") {
  Parameter a("a", Tensor::full({16}, 1)), frozen("frozen", Tensor::full({16}, 1)), b("b", Tensor::full({16}, 1));
  FlatParameters flat({&a, &frozen, &b});
  Optimizer optimizer(flat, {{{&a, &b}, Sgd{}}});
  const Tensor gradient = Tensor::full({1024}, 1);
  optimizer.step(gradient, {true, true, true}, 0.5);
  CHECK(a.value.values()[3] == 0.5);
  CHECK(b.value.values()[3] == 0.5);
  CHECK(frozen.value.values() == std::vector<double>(16, 1));
  CHECK(optimizer.norm(gradient, {true, true, true}) == std::sqrt(32.0));
}

TEST_CASE("optimizer state can be read and set part by part, and training continues unchanged") {
  for (const auto& [name, first, second] : cases)
    for (const DType dtype : {DType::f64, DType::bf16}) {
      INFO(name << " " << text(dtype));
      Rank before(dtype, first, second);
      take_steps(before, dtype);
      on_ranks({1, 3}, [&, &first = first, &second = second](Communicator& comm) {
        const Range owned = before.layout().part(number(comm), comm.size());
        Rank rank(dtype, first, second, owned, over(comm));
        for (size_t i = 0; i < shapes.size(); ++i) {
          rank.parameters[i].value.copy_from(before.parameters[i].value);
          rank.optimizer->set_steps(rank.parameters[i], before.optimizer->steps(before.parameters[i]));
        }
        const std::vector<Optimizer::State> saved = before.optimizer->state();
        for (Optimizer::State& mine : rank.optimizer->state())
          for (const Optimizer::State& all : saved)
            if (all.name == mine.name && all.parameter->name == mine.parameter->name)
              mine.values.copy_from(all.values.slice(mine.first, mine.first + mine.values.size()));
        take_steps(rank, dtype);
        Rank whole(dtype, first, second);
        take_steps(whole, dtype);
        take_steps(whole, dtype);
        expect_same_bits(rank.owned_values(), part(whole.optimizer->parameters(), owned));
      });
    }
}

TEST_CASE("an optimizer refuses ranges other than whole blocks, and gradients with the wrong extent") {
  CHECK_THROWS_AS(Rank(DType::f32, Sgd{}, Sgd{}, Range{0, 1000}), Error);
  CHECK_THROWS_AS(Rank(DType::f32, Sgd{}, Sgd{}, Range{0, 1 << 20}), Error);
  Rank rank(DType::f32, Sgd{}, Sgd{}, Range{1024, 3072});
  CHECK_THROWS_AS(rank.optimizer->step(Tensor::zeros({1024}), all_marks, 1), Error);
  CHECK_THROWS_AS(rank.optimizer->step(Tensor::zeros({2048}), {true}, 1), Error);
  CHECK_THROWS_AS(rank.optimizer->step(Tensor::zeros({2048}, DType::f64), all_marks, 1), Error);
}

}  // namespace test_optim_sharding
}  // namespace weft
