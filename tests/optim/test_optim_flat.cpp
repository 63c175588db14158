// SPDX-License-Identifier: Apache-2.0
// Parameters in one contiguous buffer.
#include <deque>

#include "tests/support/catch.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/optim/optimizer.h"

namespace weft {
namespace {

std::deque<Parameter> make_parameters(const std::vector<Shape>& shapes, DType dtype = DType::f32) {
  std::deque<Parameter> parameters;
  for (const Shape& shape : shapes)
    parameters.emplace_back("p" + std::to_string(parameters.size()),
                            Tensor::normal(shape, {7, parameters.size()}, 0, 1, dtype));
  return parameters;
}
std::vector<Parameter*> pointers(std::deque<Parameter>& parameters) {
  std::vector<Parameter*> all;
  for (Parameter& parameter : parameters) all.push_back(&parameter);
  return all;
}

TEST_CASE("flat memory aligns parameters to 16 elements and pads with zeros to a multiple of 1024") {
  auto parameters = make_parameters({{3, 5}, {}, {1000}, {0}, {32}});
  std::vector<std::vector<double>> before;
  for (const Parameter& parameter : parameters) before.push_back(parameter.value.values());
  const FlatParameters flat(pointers(parameters));

  const std::vector<int64_t> begins = {0, 16, 32, 1040, 1040};
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Place& place = flat.layout().places()[i];
    CHECK(place.begin == begins[i]);
    CHECK(flat.layout().find(parameters[i]) == static_cast<int64_t>(i));
    CHECK(parameters[i].value.values() == before[i]);
    CHECK(flat.flat().slice(place.range().first, place.range().last).values() == before[i]);
  }
  CHECK(flat.layout().size() == 15 + 1 + 1000 + 32);
  CHECK(flat.layout().padded_size() == 2048);
  CHECK(flat.flat().slice(15, 16).item() == 0);
  CHECK(flat.flat().slice(17, 32).values() == std::vector<double>(15));
  CHECK(flat.flat().slice(1072, 2048).values() == std::vector<double>(976));
}

TEST_CASE("the parts of a FlatLayout are whole blocks that cover it") {
  auto parameters = make_parameters({{3000}, {2500}});
  const FlatLayout layout(pointers(parameters));
  for (const int64_t parts : {1, 2, 3, 4, 7, 9}) {
    int64_t end = 0;
    for (int64_t i = 0; i < parts; ++i) {
      const Range part = layout.part(i, parts);
      CHECK(part.first == end);
      CHECK(part.first % 1024 == 0);
      CHECK(part.size() <= (layout.padded_size() / 1024 + parts - 1) / parts * 1024);
      end = part.last;
    }
    CHECK(end == layout.padded_size());
  }
}

TEST_CASE("a tape allows changes to parameters that it does not use, and refuses those that it uses") {
  auto parameters = make_parameters({{4}, {4}}, DType::f64);
  Optimizer of_first({&parameters[0]}, Sgd{});
  FlatParameters both(pointers(parameters));
  Optimizer of_second(both, {{{&parameters[1]}, Sgd{}}});
  Tape tape;
  const Var loss = sum(square(tape.watch(parameters[0])));
  Gradients other, gradients;
  other.add(parameters[1], Tensor::full({4}, 1, DType::f64));

  of_second.step(other, 0.1);
  tape.backward(loss, gradients, Keep::tape);
  CHECK(gradients.has(parameters[0]));
  both.changed(Range{16, 1024});
  CHECK_NOTHROW(tape.backward(loss, gradients, Keep::tape));
  both.changed(Range{3, 4});
  CHECK_THROWS_AS(tape.backward(loss, gradients), Error);
}

TEST_CASE("an optimizer step is noticed by a tape that still needs the parameter") {
  auto parameters = make_parameters({{4}}, DType::f64);
  Optimizer optimizer(pointers(parameters), AdamW{});
  Tape tape;
  const Var loss = sum(square(tape.watch(parameters[0])));
  Gradients gradients;
  tape.backward(loss, gradients, Keep::tape);
  optimizer.step(gradients, 0.1);
  CHECK_THROWS_AS(tape.backward(loss, gradients), Error);
}

TEST_CASE("views keep flat memory alive and write to it") {
  auto parameters = make_parameters({{20}, {8}});
  const int64_t live = backend(Device::cpu).memory().live_bytes;
  Tensor flat;
  {
    const FlatParameters memory(pointers(parameters));
    flat = memory.flat();
  }
  Tensor value = parameters[1].value;
  parameters.clear();
  value.mutate<float>()[0] = 42;
  CHECK(flat.slice(32, 33).item() == 42);
  flat = Tensor();
  {
    const Tensor reuse = Tensor::zeros({1024});  // would reuse memory that is released too early
    CHECK(value.values()[0] == 42);
  }
  value = Tensor();
  CHECK(backend(Device::cpu).memory().live_bytes < live);
}

TEST_CASE("flat memory can be supplied by the caller and shared by several ranks") {
  auto mine = make_parameters({{20}, {8}}), theirs = make_parameters({{20}, {8}});
  theirs[0].value.copy_from(Tensor::zeros({20}));
  StorageHandle shared;
  const auto allocate = [&](size_t bytes) {
    if (!shared) shared = StorageHandle(backend(Device::cpu).allocate(bytes));
    return shared;
  };
  const std::vector<double> values = mine[0].value.values();
  const FlatParameters first(pointers(mine), allocate);
  const FlatParameters second(pointers(theirs), allocate, FlatMemory::Contents::kept);
  CHECK(mine[0].value.data() == theirs[0].value.data());
  CHECK(theirs[0].value.values() == values);
}

TEST_CASE("flat gradients have the parameters' shapes and the requested type") {
  auto parameters = make_parameters({{2, 3}, {5}}, DType::bf16);
  FlatMemory gradients(FlatLayout(pointers(parameters)), DType::f32);
  Tensor view = gradients.view(0);
  CHECK(view.shape() == Shape{2, 3});
  CHECK(view.dtype() == DType::f32);
  CHECK(view.values() == std::vector<double>(6));
  view.copy_from(Tensor::full({2, 3}, 4));
  CHECK(gradients.flat().slice(5, 7).values() == std::vector<double>{4, 0});
}

TEST_CASE("flat memory refuses parameters of different types, and an optimizer refuses replaced values") {
  Parameter a("a", Tensor::zeros({2})), b("b", Tensor::zeros({2}, DType::f64));
  CHECK_THROWS_WITH(FlatParameters({&a, &b}),
                    "flat: b is f64 on cpu beside f32 on cpu; each kind needs flat memory of its own");
  Optimizer optimizer({&a}, Sgd{});
  Gradients gradients;
  gradients.add(a, Tensor::zeros({2}));
  a.value = Tensor::zeros({2});
  CHECK_THROWS_WITH(optimizer.step(gradients, 1), Catch::Contains("the value of a was replaced"));
}

}  // namespace
}  // namespace weft
