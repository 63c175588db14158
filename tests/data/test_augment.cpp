// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/on_ranks.h"
#include "weft/data/augment.h"

namespace weft {
namespace {

constexpr Augmentation nothing = {1, 1, 0, 0, 0, 0, 0};
const Random key{5};

Tensor pictures(int64_t count, DType dtype = DType::f64) { return Tensor::uniform({count, 6, 5, 2}, {9}, 0, 1, dtype); }
std::vector<int64_t> numbers(int64_t first, int64_t count) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(first + i);
  return all;
}

TEST_CASE("an augmentation with zero strength returns the image unchanged") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = pictures(3, dtype);
    CHECK(augment(x, numbers(0, 3), key, nothing).values() == x.values());
  }
}

TEST_CASE("an augmented sample does not depend on the rank or the other samples") {
  const Tensor x = pictures(7);
  const Tensor all = augment(x, numbers(40, 7), key);
  for (int64_t i = 0; i < 7; ++i)
    CHECK(augment(x.slice(i, i + 1), numbers(40 + i, 1), key).values() == all.slice(i, i + 1).values());
  CHECK(augment(x, numbers(41, 7), key).values() != all.values());
  CHECK(augment(x, numbers(40, 7), Random{6}).values() != all.values());
  CHECK(augment(x.slice(0, 0), {}, key).shape() == Shape{0, 6, 5, 2});
}

TEST_CASE("augmented images stay within the value range") {
  for (const double v : augment(pictures(200), numbers(0, 200), key).values()) CHECK((v >= 0 && v <= 1));
}

TEST_CASE("flipping an image mirrors it, and flipping twice restores it") {
  Augmentation flips = nothing;
  flips.flip = 1;
  const Tensor x = pictures(2), once = augment(x, numbers(0, 2), key, flips);
  CHECK(once.values()[0] == x.values()[4 * 2]);
  CHECK(augment(once, numbers(0, 2), key, flips).values() == x.values());
}

TEST_CASE("brightness and contrast change an image within their limits") {
  Augmentation light = nothing;
  light.brightness = 0.5;
  const Tensor grey = Tensor::full({50, 4, 4, 1}, 0.5, DType::f64);
  const auto brightened = augment(grey, numbers(0, 50), key, light).values();
  const auto [least, most] = std::minmax_element(brightened.begin(), brightened.end());
  CHECK((*least >= 0.25 && *least < 0.3 && *most <= 0.75 && *most > 0.7));
  light.contrast = 0.9;  // without effect on a uniform image
  const auto both = augment(grey, numbers(0, 50), key, light).values();
  for (size_t i = 0; i < both.size(); ++i) CHECK(both[i] == Approx(brightened[i]));
  light.brightness = 0;
  for (const double v : augment(grey, numbers(0, 50), key, light).values()) CHECK(v == Approx(0.5).margin(1e-12));
}

TEST_CASE("a blur spreads an interior pixel evenly and preserves its total brightness") {
  Augmentation blurs = nothing;
  blurs.blur = 1;
  Tensor point = Tensor::zeros({1, 9, 9, 1}, DType::f64);
  point.mutate<double>()[4 * 9 + 4] = 1;
  const auto placement = augment(point, numbers(0, 1), key, blurs).values();
  double sum = 0;
  for (const double v : placement) sum += v;
  CHECK(sum == Approx(1));
  CHECK(placement[4 * 9 + 4] < 1);
  CHECK(placement[4 * 9 + 3] == Approx(placement[3 * 9 + 4]));
}

TEST_CASE("a blur replicates the border pixels") {
  Augmentation blurs = nothing;
  blurs.blur = 1;
  const auto blurred = [&](int64_t y, int64_t x) {
    Tensor line = Tensor::zeros({1, 9, 9, 1}, DType::f64);  // a row or a column; -1 stands for the other
    for (int64_t i = 0; i < 9; ++i) line.mutate<double>()[(y < 0 ? i : y) * 9 + (x < 0 ? i : x)] = 1;
    return augment(line, numbers(0, 1), key, blurs).values();
  };
  const auto bell = blurred(-1, 4), left = blurred(-1, 0), right = blurred(-1, 8), top = blurred(0, -1),
             bottom = blurred(8, -1);
  for (const size_t far : {0, 1, 2}) {  // distance from the edge
    const double sum = bell[2] + (far < 2 ? bell[3] : 0) + (far < 1 ? bell[4] : 0);
    for (const double seen : {left[far], right[8 - far], top[far * 9], bottom[(8 - far) * 9]})
      CHECK(seen == Approx(sum));
  }
}

TEST_CASE("random erasing covers between 1/20 and 1/5 of the image") {
  Augmentation erases = nothing;
  erases.erase = 1;
  const Tensor white = Tensor::full({100, 28, 28, 1}, 1, DType::f64);
  const Tensor views = augment(white, numbers(0, 100), key, erases);
  for (int64_t i = 0; i < 100; ++i) {
    double left = 0;
    for (const double v : views.slice(i, i + 1).values()) left += v / (28 * 28);
    CHECK((left > 0.75 && left < 0.97));
  }
}

Tensor coloured(int64_t count) { return Tensor::uniform({count, 4, 4, 3}, {9}, 0.3, 0.7, DType::f64); }
double grey_value(const std::vector<double>& v, size_t i) { return 0.299 * v[i] + 0.587 * v[i + 1] + 0.114 * v[i + 2]; }

TEST_CASE("colours change around the grey value, within their limits, and other draws stay as they are") {
  Augmentation colours = nothing;
  colours.saturation = 0.4;
  const Tensor x = coloured(200);
  const auto before = x.values(), after = augment(x, numbers(0, 200), key, colours).values();
  double least = 9, most = 0;
  for (size_t i = 0; i < before.size(); i += 3) {
    const double grey = grey_value(before, i), stretch = (after[i] - grey) / (before[i] - grey);
    CHECK(grey_value(after, i) == Approx(grey).epsilon(1e-3));
    if (std::abs(before[i] - grey) > 0.05) least = std::min(least, stretch), most = std::max(most, stretch);
  }
  CHECK((least > 0.59 && least < 0.64 && most < 1.41 && most > 1.36));
  Augmentation all;
  const auto usual = augment(x, numbers(0, 200), key, all).values();
  all.saturation = 1e-9;
  const auto barely = augment(x, numbers(0, 200), key, all).values();
  for (size_t i = 0; i < usual.size(); ++i) CHECK(barely[i] == Approx(usual[i]).margin(1e-3));
}

TEST_CASE("a turn of the hue keeps grey, and half a turn gives the complement of a colour") {
  Augmentation turns = nothing;
  turns.hue = 0.5;
  const Tensor grey = Tensor::full({50, 2, 2, 3}, 0.4, DType::f64);
  for (const double v : augment(grey, numbers(0, 50), key, turns).values()) CHECK(v == Approx(0.4).epsilon(1e-3));
  const Tensor reddish = Tensor::from({1, 1, 1, 3}, {0.5, 0.4, 0.4}, DType::f64);
  double least = 1;
  for (int64_t i = 0; i < 400; ++i) least = std::min(least, augment(reddish, numbers(i, 1), key, turns).values()[0]);
  const double complement = 2 * grey_value(reddish.values(), 0) - 0.5;
  CHECK(least == Approx(complement).margin(0.002));
}

TEST_CASE("grayscale leaves the grey value in some views, and images without colours are not changed") {
  Augmentation greys = nothing;
  greys.grayscale = 0.25;
  const Tensor x = coloured(400), views = augment(x, numbers(0, 400), key, greys);
  int64_t grey = 0;
  for (int64_t i = 0; i < 400; ++i) {
    const auto v = views.slice(i, i + 1).values();
    grey += std::abs(v[0] - v[1]) < 1e-2 && std::abs(v[3] - v[5]) < 1e-2 && std::abs(v[6] - v[7]) < 1e-2;
  }
  CHECK((grey > 70 && grey < 130));
  const Tensor plain = pictures(3);  // two channels
  CHECK(augment(plain, numbers(0, 3), key, {1, 1, 0, 0, 0, 0, 0, 0.5, 0.5, 1}).values() == plain.values());
}

TEST_CASE("invalid augmentations are refused") {
  expect_refusal([] { augment(Tensor::zeros({2, 3}), {}, key); }, {"augment", "(2, 3)"});
  expect_refusal([] { augment(pictures(2), numbers(0, 1), key); }, {"augment", "1 samples"});
  expect_refusal([] { augment(pictures(1), numbers(0, 1), key, {.min_area = 0}); }, {"area in (0, 1]"});
}

}  // namespace
}  // namespace weft
