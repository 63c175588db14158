// SPDX-License-Identifier: Apache-2.0
// Layers: results, lists of parameters, and behaviour in training, in evaluation and without a tape.
#include <cmath>

#include "tests/support/gradcheck.h"
#include "tests/support/on_each_device.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/convolution.h"
#include "weft/engine/nn/dropout_layer.h"
#include "weft/engine/nn/embedding.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/nn/norm_layers.h"
#include "weft/engine/nn/sequential.h"
#include "weft/engine/ops/activation_checkpoint.h"

using namespace weft;
using Catch::Contains;

namespace {

struct Layers : OnEachDevice {
  Init init = {.key = {11}, .dtype = DType::f64, .device = device};
};

std::vector<std::string> names(const std::vector<Parameter*>& parameters) {
  std::vector<std::string> result;
  for (const Parameter* p : parameters) result.push_back(p->name);
  return result;
}

struct Net : Module {  // as in an application
  Conv2d image;
  BatchNorm norm;
  Mlp head;
  explicit Net(const Init& init)
      : image("net.image", 1, 4, {3, 3}, init, {.stride = {2, 2}}, {Unary::Relu, {}}, Bias::no),
        norm("net.norm", 4, init),
        head("net.head", {36, 8, 3}, init) {
    register_module(image);
    register_module(norm);
    register_module(head);
  }
  Var operator()(const Var& x, const Pass& pass = {}) { return head(flatten(norm(image(x), pass)), pass); }
};

constexpr Pass training = {.training = true};

}  // namespace

TEST_CASE_METHOD(Layers, "a module lists the parameters and buffers of all submodules by dotted names") {
  const Net net(init);
  CHECK(names(net.parameters()) == std::vector<std::string>{"net.image.weight", "net.norm.gamma", "net.norm.beta",
                                                            "net.head.0.weight", "net.head.0.bias", "net.head.1.weight",
                                                            "net.head.1.bias"});
  CHECK(names(net.buffers()) == std::vector<std::string>{"net.norm.running_mean", "net.norm.running_variance"});
}

TEST_CASE_METHOD(Layers, "a network runs without a tape, and with one every parameter gets a gradient") {
  Net net(init);
  const Tensor x = random({5, 7, 7, 1});
  CHECK_FALSE(net(x).tracked());
  Tape tape;
  const Var y = net(tape.constant(x));
  CHECK(distance(net(x), y) == 0);
  Gradients gradients;
  tape.backward(sum(y), gradients);
  for (const Parameter* p : net.parameters()) {
    INFO(p->name);
    CHECK(gradients.has(*p));
  }
}

TEST_CASE_METHOD(Layers, "a parameter's initial value does not depend on the other parameters") {
  const Linear a("a", 4, 3, init);
  const Mlp other("other", {4, 3}, init);
  const Linear again("a", 4, 3, init);
  CHECK(a.weight.value.values() == again.weight.value.values());
  CHECK(a.weight.value.values() != other.parameters()[0]->value.values());
  CHECK(a.bias.value.values() == Values{0, 0, 0});
}

TEST_CASE_METHOD(Layers, "initialisers have the standard deviation that fan-in and fan-out call for") {
  const Shape shape = {3, 3, 20, 80};
  CHECK(fans(shape).in == 180);
  CHECK(fans(shape).out == 720);
  const auto deviation = [](const Tensor& x) { return std::sqrt(mean(square(x)).value().item()); };
  CHECK(deviation(kaiming_uniform(init, "a", shape, 2)) == Approx(2 / std::sqrt(180)).epsilon(0.02));
  CHECK(deviation(kaiming_normal(init, "b", shape)) == Approx(1 / std::sqrt(180)).epsilon(0.02));
  CHECK(deviation(xavier_uniform(init, "c", shape)) == Approx(1 / std::sqrt(450)).epsilon(0.02));
  CHECK(deviation(xavier_normal(init, "d", shape, 3)) == Approx(3 / std::sqrt(450)).epsilon(0.02));
  CHECK(max(abs(init.uniform("e", {1000}, 0.5))).value().item() <= 0.5);
  CHECK(gain({}) == 1);
  CHECK(gain({Unary::Gelu, {}}) == Approx(std::sqrt(2)));
  CHECK_THROWS_WITH(fans({3}), "fans: a weight has at least two axes, not (3)");
}

TEST_CASE_METHOD(Layers, "Linear, Conv2d, ConvTranspose2d and Embedding layers equal their ops") {
  const Tensor x = random({2, 5, 5, 3});
  Linear linear_layer("l", 3, 4, init, {Unary::Tanh, {}});
  CHECK(distance(linear_layer(x), linear(x, linear_layer.weight.value, linear_layer.bias.value, {Unary::Tanh, {}})) ==
        0);
  Linear plain("p", 3, 4, init, {}, Bias::no);
  CHECK(plain.parameters().size() == 1);
  CHECK(distance(plain(x), linear(x, plain.weight.value)) == 0);
  const Sliding sliding = {.stride = {2, 1}, .padding = {1, 1}};
  Conv2d down("c", 3, 4, {3, 2}, init, sliding);
  CHECK(distance(down(x), conv2d(x, down.weight.value, {}, sliding)) == 0);
  ConvTranspose2d up("t", 3, 4, {2, 2}, init, {{.stride = {2, 2}}});
  CHECK(up(x).shape() == Shape{2, 10, 10, 4});
  CHECK(distance(up(x), conv_transpose2d(x, up.weight.value, {}, {{.stride = {2, 2}}})) == 0);
  Embedding table("e", 7, 2, init);
  CHECK(distance(table(i64({3}, {6, 0, 6})), gather_rows(table.weight.value, i64({3}, {6, 0, 6}))) == 0);
  Tape tape;
  CHECK(table(tape.constant(i64({1}, {2}))).tracked());
}

TEST_CASE_METHOD(Layers, "LayerNorm initially equals standardize per row, and BatchNorm standardize over the batch") {
  const Tensor x = random({4, 3, 5});
  LayerNorm rows("r", 5, init);
  CHECK(distance(rows(x), standardize(x)) < 1e-14);
  LayerNorm rectified("a", 5, init, {Unary::Relu, {}}), wide("w", 5, init, {Unary::Tanh, {}}, 0.5);
  CHECK(distance(rectified(x), relu(standardize(x))) < 1e-14);
  CHECK(distance(wide(x), tanh(standardize(x, 0.5))) < 1e-14);
  BatchNorm batch("b", 5, init);
  const Var columns = transpose(standardize(transpose(reshape(x, {12, 5}))));
  CHECK(distance(reshape(batch(x, training), {12, 5}), columns) < 1e-12);
}

TEST_CASE_METHOD(Layers, "BatchNorm updates its running statistics in training and uses them in evaluation") {
  BatchNorm norm("n", 2, init, 0.25);
  const Tensor x = f64({2, 2}, {1, 10, 3, 14});
  CHECK(distance(norm(x), Var(x) * (1 / std::sqrt(1 + 1e-5))) < 1e-12);
  CHECK(norm.running_mean.value.values() == Values{0, 0});
  norm(x, training);
  CHECK(norm.running_mean.value.values() == Values{0.5, 3});
  CHECK(norm.running_variance.value.values() == Values{0.75 + 0.25 * 2, 0.75 + 0.25 * 8});
  CHECK(values_of(norm(x))[0] == Approx(0.5 / std::sqrt(1.25 + 1e-5)));
  CHECK_THROWS_WITH(norm(random({1, 2}), training),
                    Contains("1 values per channel in (1, 2); training needs at least two"));
  CHECK_THROWS_WITH(norm(random({2, 3})), "BatchNorm: 'n.gamma' has 2 channels, the input is (2, 3)");
}

TEST_CASE_METHOD(Layers, "BatchNorm of bf16 inputs keeps batch and running statistics in f32") {
  BatchNorm norm("n", 2, {.key = init.key, .dtype = DType::bf16, .device = device});
  BatchNorm wide("w", 2, {.key = init.key, .dtype = DType::f32, .device = device});
  const Tensor x = affine(random({600, 2}), 1, 10).value().to(DType::bf16);
  Var y, expected;
  for (int step = 0; step < 1000; ++step) {
    y = norm(x, training);
    expected = wide(x.to(DType::f32), training);
  }
  CHECK(y.dtype() == DType::bf16);
  CHECK(distance(y, expected.value().to(DType::bf16)) == 0);
  for (const auto average : {&BatchNorm::running_mean, &BatchNorm::running_variance}) {
    CHECK((norm.*average).value.dtype() == DType::f32);
    CHECK((norm.*average).value.values() == (wide.*average).value.values());
  }
  CHECK(norm.running_mean.value.values()[0] == Approx(10).epsilon(1e-2));
  CHECK(norm(x).dtype() == DType::bf16);
}

TEST_CASE_METHOD(Layers, "BatchNorm in training has second derivatives with respect to input and parameters") {
  BatchNorm norm("n", 3, init);
  const auto layer = [&](std::span<const Var> x) { return norm(x[0], training); };
  const GradientCheck check(layer, {{4, 3}}, -1, 1, device);
  CHECK(check.first_order().ok());
  CHECK(check.second_order().ok());
  const auto slope_by_gamma = [&](std::span<const Var> x) {
    Tape& tape = *x[0].tape();
    return tape.gradient(sum(pow(layer(x), 3)), {tape.watch(norm.gamma)}, Graph::create)[0];
  };
  CHECK(GradientCheck(slope_by_gamma, {{4, 3}}, -1, 1, device).first_order().ok());
}

TEST_CASE_METHOD(Layers, "BatchNorm under a checkpoint updates its running statistics once and has the same gradient") {
  BatchNorm plain("n", 3, init), again("n", 3, init);
  const Tensor x = random({6, 3}), g = random({6, 3}, 1);
  const auto direct = [&](const Var& v) { return plain(v, training); };
  const auto saved = [&](const Var& v) {
    return checkpoint([&](std::span<const Var> u) { return again(u[0], training); }, {v});
  };
  CHECK(distance(gradient_of(direct, x, g), gradient_of(saved, x, g)) == 0);
  CHECK(plain.running_mean.value.values() == again.running_mean.value.values());
}

TEST_CASE_METHOD(Layers, "Dropout acts in training only, and depends on a sample's place in the global batch") {
  Dropout drop("d", 0.5);
  const Tensor x = full({8, 5}, 1);
  CHECK(values_of(drop(x)) == values_of(x));
  const Pass pass = {.training = true, .key = {3}, .first_sample = 0};
  const Values whole = values_of(drop(x, pass));
  CHECK(whole != values_of(x));
  CHECK(values_of(drop(x.slice(6, 8), {.training = true, .key = {3}, .first_sample = 6})) ==
        Values(whole.begin() + 30, whole.end()));
  CHECK(values_of(Dropout("other", 0.5)(x, pass)) != whole);
}

TEST_CASE_METHOD(Layers, "Mlp and Sequential apply their layers in order") {
  const Tensor x = random({4, 6});
  Mlp mlp("net", {6, 5, 2}, init);
  Sequential net("net");
  net.add<Linear>(6, 5, init, Activation{.op = Unary::Relu});
  net.add<Linear>(5, 2, init);
  CHECK(distance(mlp(x), net(x)) == 0);
  net.then([](const Var& y) { return softmax(y); });
  net.add<Dropout>(0.5);
  CHECK(distance(net(x), softmax(mlp(x))) == 0);
  CHECK(distance(net(x, training), net(x)) > 0);
  CHECK(names(net.parameters()) == names(mlp.parameters()));
  CHECK_THROWS_WITH(Mlp("m", {3}, init), "Mlp: 'm' needs at least two widths, not 1");
}
