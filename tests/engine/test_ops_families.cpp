// SPDX-License-Identifier: Apache-2.0
// Values, rules and refusals of the ops that rearrange, select, normalise and drop elements. Image ops have a file of
// their own, and every gradient is checked from the ops' samples elsewhere.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/on_each_device.h"

using namespace weft;
using Catch::Contains;

TEST_CASE_METHOD(OnEachDevice, "reshape and flatten share memory with their input") {
  const Var x = counted({2, 3, 2});
  CHECK(reshape(x, {4, 3}).value().shares_memory_with(x.value()));
  CHECK(values_of(reshape(x, {4, 3})) == values_of(x));
  CHECK(flatten(x).shape() == Shape{2, 6});
  CHECK(flatten(x, 0).shape() == Shape{12});
  CHECK(flatten(x, 3).shape() == Shape{2, 3, 2, 1});
  CHECK(flatten(empty({0, 3, 2})).shape() == Shape{0, 6});
}

TEST_CASE_METHOD(OnEachDevice, "slice takes a range along any axis, and pad is its adjoint") {
  const Var x = counted({2, 3, 2});
  CHECK(values_of(slice(x, 0, 1, 2)) == Values{6, 7, 8, 9, 10, 11});
  CHECK(values_of(slice(x, 1, 1, 3)) == Values{2, 3, 4, 5, 8, 9, 10, 11});
  CHECK(values_of(slice(x, -1, 0, 1)) == Values{0, 2, 4, 6, 8, 10});
  CHECK(slice(x, 1, 2, 2).shape() == Shape{2, 0, 2});
  CHECK(values_of(pad(slice(x, -1, 0, 1), -1, 1, 0)) == Values{0, 0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10});
  CHECK(values_of(pad(empty({2, 0}), 1, 1, 1, 7)) == Values{7, 7, 7, 7});
}

TEST_CASE_METHOD(OnEachDevice, "concat and stack join along any axis") {
  const Var a = f64({2, 2}, {1, 2, 3, 4}), b = f64({2, 1}, {5, 6}), c = f64({2, 2}, {7, 8, 9, 0});
  CHECK(values_of(concat({a, b}, 1)) == Values{1, 2, 5, 3, 4, 6});
  CHECK(values_of(concat({a, c}, 0)) == Values{1, 2, 3, 4, 7, 8, 9, 0});
  CHECK(values_of(concat({empty({2, 0}), a}, -1)) == values_of(a));
  CHECK(values_of(stack({a, c}, 0)) == Values{1, 2, 3, 4, 7, 8, 9, 0});
  CHECK(values_of(stack({a, c}, -1)) == Values{1, 7, 2, 8, 3, 9, 4, 0});
  CHECK(stack({a, c, a}, 1).shape() == Shape{2, 3, 2});
}

TEST_CASE_METHOD(OnEachDevice, "permute, swap_axes, transpose and flip move every element to its place") {
  const Tensor x = counted({2, 3, 4});
  const Values moved = values_of(permute(x, {2, 0, 1})), turned = values_of(flip(x, 1));
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 3; ++j)
      for (size_t k = 0; k < 4; ++k) {
        CHECK(moved[(k * 2 + i) * 3 + j] == static_cast<double>((i * 3 + j) * 4 + k));
        CHECK(turned[(i * 3 + j) * 4 + k] == static_cast<double>((i * 3 + 2 - j) * 4 + k));
      }
  CHECK(distance(swap_axes(x, 0, -1), permute(x, {2, 1, 0})) == 0);
  CHECK(values_of(transpose(counted({2, 3}))) == Values{0, 3, 1, 4, 2, 5});
  CHECK(permute(empty({2, 0, 3}), {1, 2, 0}).shape() == Shape{0, 3, 2});
}

TEST_CASE_METHOD(OnEachDevice, "ops that move elements accept integers") {
  const Var x = i64({2, 2}, {1, 2, 3, 4});
  CHECK(values_of(concat({slice(x, 0, 1, 2), slice(x, 0, 0, 1)}, 0)) == Values{3, 4, 1, 2});
  CHECK(values_of(pad(x, 1, 0, 1, -1)) == Values{1, 2, -1, 3, 4, -1});
  CHECK(values_of(flip(transpose(x), 1)) == Values{3, 1, 4, 2});
  CHECK(values_of(gather_rows(x, i64({1}, {1}))) == Values{3, 4});
}

TEST_CASE_METHOD(OnEachDevice, "ops that rearrange elements refuse shapes and axes that do not fit") {
  const Var x = counted({2, 3});
  CHECK_THROWS_WITH(reshape(x, {4, 2}), "reshape: (2, 3) holds 6 elements, (4, 2) needs 8");
  CHECK_THROWS_WITH(reshape(Var(), {1}), "reshape: the input is empty");
  CHECK_THROWS_WITH(flatten(x, 3), "flatten: (2, 3) has no axis 3");
  CHECK_THROWS_WITH(slice(x, -1, 1, 4), "slice: 1 to 4 along axis 1 of (2, 3)");
  CHECK_THROWS_WITH(slice(x, 2, 0, 1), Contains("axis 2 of (2, 3)"));
  CHECK_THROWS_WITH(pad(x, 0, -1, 0), "pad: by -1 and 0 along axis 0 of (2, 3)");
  CHECK_THROWS_WITH(concat({}, 0), "concat: there is nothing to join");
  CHECK_THROWS_WITH(concat({x, counted({3, 3})}, 1), "concat: f64 (3, 3) does not continue f64 (2, 3) along axis 1");
  CHECK_THROWS_WITH(stack({}, 0), "stack: there is nothing to join");
  CHECK_THROWS_WITH(stack({x, counted({3, 3})}, 0), "stack: shapes differ, (2, 3) and (3, 3)");
  CHECK_THROWS_WITH(permute(x, {0, 0}), "permute: (0, 0) is not an order of the axes of (2, 3)");
  CHECK_THROWS_WITH(transpose(counted({2, 3, 4})), "transpose: a matrix is needed, not (2, 3, 4)");
}

TEST_CASE_METHOD(OnEachDevice, "gather_rows picks rows, and scatter_add_rows is its adjoint") {
  const Var x = counted({3, 2});
  const Tensor indices = i64({2, 2}, {2, 0, 2, 1});
  CHECK(gather_rows(x, indices).shape() == Shape{2, 2, 2});
  CHECK(values_of(embedding(x, indices)) == Values{4, 5, 0, 1, 4, 5, 2, 3});
  CHECK(values_of(scatter_add_rows(gather_rows(x, indices), indices, 4)) == Values{0, 1, 2, 3, 8, 10, 0, 0});
  CHECK(gather_rows(x, i64({0}, {})).shape() == Shape{0, 2});
  CHECK(values_of(scatter_add_rows(empty({0, 2}), i64({0}, {}), 2)) == Values{0, 0, 0, 0});
}

TEST_CASE_METHOD(OnEachDevice, "take_along selects along an axis at every position, and put_along is its adjoint") {
  const Tensor x = counted({2, 3, 2}), indices = i64({2, 2, 2}, {2, 0, 1, 0, 0, 1, 2, 1});
  CHECK(values_of(take_along(x, indices, 1)) == Values{4, 1, 2, 1, 6, 9, 10, 9});
  CHECK(values_of(take_along(f64({2, 2}, {1, 2, 3, 4}), i64({2, 1}, {1, 0}), -1)) == Values{2, 3});
  const Tensor g = random({2, 2, 2});
  CHECK(sum(take_along(x, indices, 1) * g).value().item() ==
        Approx(sum(Var(x) * put_along(g, indices, 1, 3)).value().item()));
  CHECK(take_along(x, i64({2, 0, 2}, {}), 1).shape() == Shape{2, 0, 2});
  CHECK(values_of(put_along(empty({1, 0}), i64({1, 0}, {}), 1, 2)) == Values{0, 0});
}

TEST_CASE_METHOD(OnEachDevice, "one_hot marks the class of every index") {
  CHECK(values_of(one_hot(i64({2}, {2, 0}), 3)) == Values{0, 0, 1, 1, 0, 0});
  CHECK(one_hot(i64({2, 2}, {0, 1, 2, 0}), 3, DType::f64).shape() == Shape{2, 2, 3});
}

TEST_CASE_METHOD(OnEachDevice, "index ops refuse indices with a wrong type or shape") {
  const Var x = counted({3, 2});
  CHECK_THROWS_WITH(gather_rows(x, f64({1}, {0})), "gather_rows: index must be i64, not f64");
  CHECK_THROWS_WITH(gather_rows(f64({}, {1}), i64({1}, {0})), "gather_rows: a scalar has no rows");
  CHECK_THROWS_WITH(scatter_add_rows(x, i64({2}, {0, 1}), 2), "scatter_add_rows: indices (2) and (3, 2) into 2 rows");
  CHECK_THROWS_WITH(take_along(x, i64({2, 2}, {0, 1, 0, 1}), 1),
                    "take_along: indices (2, 2) do not fit (3, 2) along axis 1");
  CHECK_THROWS_WITH(put_along(x, i64({2, 2}, {0, 1, 2, 3}), 0, 4), "put_along: indices (2, 2) for (3, 2)");
}

TEST_CASE_METHOD(OnEachDevice, "index ops on the CPU refuse indices out of range and name the first") {
  if (device != Device::cpu) return;
  const Var x = counted({3, 2});
  CHECK_THROWS_WITH(gather_rows(x, i64({3}, {0, 3, -1})), "gather_rows: index 3 at position 1 is not in 0..2");
  CHECK_THROWS_WITH(scatter_add_rows(x, i64({3}, {0, -1, 1}), 2),
                    "scatter_add_rows: index -1 at position 1 is not in 0..1");
  CHECK_THROWS_WITH(take_along(x, i64({2, 2}, {0, 1, 2, 3}), 0), "take_along: index 3 at position 3 is not in 0..2");
  CHECK_THROWS_WITH(put_along(x, i64({3, 2}, {0, 1, 2, 0, 0, 9}), 0, 4),
                    "put_along: index 9 at position 5 is not in 0..3");
  CHECK_THROWS_WITH(one_hot(i64({1}, {3}), 3), "one_hot: class 3 at position 0 is not in 0..2");
  CHECK_THROWS_WITH(cross_entropy(x, i64({3}, {0, 2, 9})), "cross_entropy: target 2 at position 1 is not in 0..1");
}

TEST_CASE_METHOD(OnEachDevice, "softmax and log_softmax follow their definitions along any axis") {
  const Var x = random({2, 3, 4});
  for (const int axis : {0, 1, 2, -1}) {
    const int at = x.shape().index(axis);
    const Var naive = exp(x) / repeat(sum(exp(x), at), at, x.shape()[at]);
    CHECK(distance(softmax(x, axis), naive) < 1e-14);
    CHECK(distance(log_softmax(x, axis), log(naive)) < 1e-14);
  }
  CHECK(values_of(softmax(f64({1, 2}, {1000, 1000}))) == Values{0.5, 0.5});
  CHECK(values_of(log_softmax(f64({1, 2}, {0, 1000}))) == Values{-1000, 0});
  CHECK(softmax(empty({0, 3})).shape() == Shape{0, 3});
  CHECK(std::isnan(values_of(softmax(f64({1, 2}, {0, std::nan("")})))[0]));
  CHECK_THROWS_WITH(softmax(i64({2}, {1, 2})), "softmax: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(log_softmax(Var(x), 3), Contains("axis 3 of (2, 3, 4)"));
}

TEST_CASE_METHOD(OnEachDevice,
                 "l2_normalize gives rows of length one, and divides by epsilon if they are shorter than that") {
  const Var x = f64({3, 2}, {3, 4, 0, 0, 0.3, 0.4});
  const Values y = values_of(l2_normalize(x, 2));
  CHECK(y[0] == Approx(0.6));
  CHECK(Values(y.begin() + 2, y.begin() + 4) == Values{0, 0});
  CHECK(y[5] == Approx(0.2));
  CHECK(values_of(norm(l2_normalize(random({4, 5})), -1))[2] == Approx(1));
  const auto f = [](const Var& v) { return l2_normalize(v, 0.5); };
  CHECK(values_of(gradient_of(f, f64({1, 2}, {0, 0}), f64({1, 2}, {1, -3}))) == Values{2, -6});
  CHECK(l2_normalize(empty({2, 0})).shape() == Shape{2, 0});
  CHECK_THROWS_WITH(l2_normalize(i64({2}, {1, 2})), "l2_normalize: a floating tensor is needed, not i64");
}

TEST_CASE("l2_normalize has the bits of square, sum, sqrt, clamp and division, and so has its gradient") {
  constexpr double epsilon = 2;  // some rows are shorter
  const auto composed = [](const Var& x) {
    return div_along(x, clamp(norm(x, -1), epsilon, std::numeric_limits<double>::infinity()), 0);
  };
  for (const DType type : {DType::f32, DType::f64})
    for (const int64_t width : {1, 5, 70, 700}) {
      Tensor x = Tensor::normal({9, width}, {1}, 0, 4 / std::sqrt(static_cast<double>(width)), type);
      Tensor row = x.slice(4, 5);
      row.copy_from(Tensor::zeros({1, width}, type));
      const Tensor g = Tensor::normal({9, width}, {2}, 0, 1, type);
      INFO(text(type) << ", " << width);
      CHECK(values_of(l2_normalize(x, epsilon)) == values_of(composed(x)));
      CHECK(values_of(gradient_of([](const Var& v) { return l2_normalize(v, epsilon); }, x, g)) ==
            values_of(gradient_of(composed, x, g)));
    }
}

TEST_CASE_METHOD(OnEachDevice,
                 "standardize gives rows of mean 0 and variance 1, and layer_norm scales and shifts them") {
  const Var x = random({2, 3, 5}), gamma = random({5}, 1), beta = random({5}, 2);
  const Var centered = x - repeat(mean(x, -1), -1, 5);
  const Var naive = centered * repeat(rsqrt(variance(x, -1) + 0.1), -1, 5);
  CHECK(distance(standardize(x, 0.1), naive) < 1e-14);
  CHECK(distance(layer_norm(x, gamma, beta, 0.1), add_along(mul_along(naive, gamma, -1), beta, -1)) < 1e-14);
  CHECK(distance(standardize(full({2, 3}, 7)), full({2, 3}, 0)) == 0);
  CHECK_THROWS_WITH(standardize(i64({2}, {1, 2})), "standardize: a floating tensor is needed, not i64");
  CHECK_THROWS_WITH(standardize(empty({2, 0})), "standardize: the rows of (2, 0) are empty");
}

TEST_CASE_METHOD(OnEachDevice, "cross_entropy is minus the log_softmax at the target") {
  const Var x = random({3, 4});
  const Tensor targets = i64({3}, {3, 0, 2});
  const auto composed = [&](const Var& v) { return -sum(log_softmax(v) * Var(one_hot(targets, 4, DType::f64)), -1); };
  const auto fused = [&](const Var& v) { return cross_entropy(v, targets); };
  CHECK(distance(fused(x), composed(x)) < 1e-14);
  const Tensor g = random({3}, 9);
  CHECK(distance(gradient_of(fused, x.value(), g), gradient_of(composed, x.value(), g)) < 1e-14);
  CHECK(values_of(cross_entropy(f64({1, 2}, {1000, 0}), i64({1}, {1}))) == Values{1000});
  CHECK(cross_entropy(empty({0, 4}), i64({0}, {})).shape() == Shape{0});
  CHECK_THROWS_WITH(cross_entropy(x, i64({2}, {0, 1})), "cross_entropy: (2) targets for logits (3, 4)");
  CHECK_THROWS_WITH(cross_entropy(random({4}), targets), "cross_entropy: logits must be (n, classes), not (4)");
}

TEST_CASE_METHOD(OnEachDevice, "dropout depends only on the key and the element index, and scales what it keeps") {
  const Tensor ones = full({1000}, 1);
  const Values y = values_of(dropout(ones, 0.25, {3}));
  const auto dropped = std::count(y.begin(), y.end(), 0.0);
  CHECK(std::count(y.begin(), y.end(), 1 / 0.75) == 1000 - dropped);
  CHECK(std::abs(static_cast<double>(dropped) - 250) < 60);
  CHECK(values_of(dropout(ones, 0.25, {3})) == y);
  CHECK(values_of(dropout(ones, 0.25, {4})) != y);
  const Values single = values_of(dropout(Tensor::full({1000}, 1, DType::f32, device), 0.25, {3}));
  CHECK(std::equal(y.begin(), y.end(), single.begin(), [](double a, double b) { return (a == 0) == (b == 0); }));
  const Values tail = values_of(dropout(ones.slice(400, 1000), 0.25, Random{3}.at(400)));
  CHECK(tail == Values(y.begin() + 400, y.end()));
}

TEST_CASE_METHOD(OnEachDevice, "dropout with probability 0 is the identity and with 1 gives zeros") {
  const Var x = random({3, 2});
  CHECK(values_of(dropout(x, 0, {3})) == values_of(x));
  CHECK(distance(dropout(x, 1, {3}), full({3, 2}, 0)) == 0);
  CHECK(dropout(empty({0, 2}), 0.5, {3}).shape() == Shape{0, 2});
  CHECK_THROWS_WITH(dropout(x, 1.5, {3}), "dropout: a probability is needed, not 1.5");
  CHECK_THROWS_WITH(dropout(i64({1}, {1}), 0.5, {3}), "dropout: a floating tensor is needed, not i64");
}
