// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions on raw pointers against plain loops in double, and their guarantees about bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "weft/engine/kernels/cpu/multiply_add_in_f64.h"
#include "weft/engine/kernels/cpu/products/convolve.h"
#include "weft/engine/kernels/cpu/products/gemm.h"

using namespace weft::cpu;

namespace {

template <class T> std::vector<T> uniform(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<T> distribution(-1, 1);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = distribution(generator);
  return values;
}

// The largest error, in units of the rounding error of a sum of `terms` products of size one.
template <class T> double error(const std::vector<T>& got, const std::vector<double>& want, int64_t terms) {
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(double(got[i]) - want[i]);
    worst = std::max(worst, std::isnan(difference) ? 1e30 : difference);
  }
  return worst / (std::numeric_limits<T>::epsilon() * (4 + double(terms)));
}

// One product with padded leading dimensions. The padding holds a mark that must survive.
template <class T> struct Product {
  static constexpr T mark = 77;
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  int64_t lda = (transpose_a ? m : k) + 3, ldb = (transpose_b ? k : n) + 1, ldc = n + 2;
  std::vector<T> a = uniform<T>((transpose_a ? k : m) * lda, 1), b = uniform<T>((transpose_b ? n : k) * ldb, 2);
  std::vector<T> start = uniform<T>(m * ldc, 3), bias = uniform<T>(n, 4);

  std::vector<T> c() const {
    std::vector<T> c = start;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = n; j < ldc; ++j) c[i * ldc + j] = mark;
    return c;
  }

  // with rows done in parts, op(a) starts at `row`
  const T* a_from(int64_t row) const { return a.data() + (transpose_a ? row : row * lda); }

  std::vector<T> run(const Epilogue<T>& epilogue = {}) const {
    std::vector<T> result = c();
    gemm(transpose_a, transpose_b, m, n, k, a.data(), lda, b.data(), ldb, result.data(), ldc, epilogue);
    return result;
  }

  std::vector<double> expected(const Epilogue<T>& epilogue = {}) const {
    const std::vector<T> before = c();
    std::vector<double> result(before.begin(), before.end());
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p)
          sum +=
              double(a[transpose_a ? p * lda + i : i * lda + p]) * double(b[transpose_b ? j * ldb + p : p * ldb + j]);
        result[i * ldc + j] = double(epilogue.alpha) * sum + (epilogue.bias ? double(epilogue.bias[j]) : 0) +
                              (epilogue.accumulate ? double(before[i * ldc + j]) : 0);
      }
    return result;
  }
};

template <class T, class F>
void for_each_product(const std::vector<int64_t>& sizes, const std::vector<int64_t>& depths, F&& body) {
  for (int64_t m : sizes)
    for (int64_t n : sizes)
      for (int64_t k : depths)
        for (int form = 0; form < 4; ++form) body(Product<T>{form % 2 == 1, form / 2 == 1, m, n, k});
}

// Kernels could round a row's alpha and accumulation differently.
template <class T> Epilogue<T> demanding(const Product<T>& product) {
  Epilogue<T> epilogue;
  epilogue.accumulate = true;
  epilogue.alpha = T(-0.3);
  epilogue.bias = product.bias.data();
  return epilogue;
}

// Geometry with the output size that a layer uses.
weft::Convolution geometry(int64_t batch, int64_t size, int64_t channels, int64_t kernel, int64_t out_channels,
                           int64_t stride, int64_t pad, int64_t dilation) {
  const auto out = [&](int64_t in) { return (in + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; };
  return {batch,        size,   size + 2, channels, kernel, kernel,   out(size), out(size + 2),
          out_channels, stride, stride,   pad,      pad,    dilation, dilation};
}

// Calls body(x, w, y) for every triple of offsets in the sum of a convolution.
template <class F> void for_each_term(const weft::Convolution& c, F&& body) {
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t oy = 0; oy < c.out_height; ++oy)
      for (int64_t ox = 0; ox < c.out_width; ++ox)
        for (int64_t ky = 0; ky < c.kernel_height; ++ky)
          for (int64_t kx = 0; kx < c.kernel_width; ++kx) {
            const int64_t y = oy * c.stride_y - c.pad_y + ky * c.dilation_y;
            const int64_t x = ox * c.stride_x - c.pad_x + kx * c.dilation_x;
            if (y < 0 || x < 0 || y >= c.height || x >= c.width) continue;
            for (int64_t i = 0; i < c.channels; ++i)
              for (int64_t o = 0; o < c.out_channels; ++o)
                body(((b * c.height + y) * c.width + x) * c.channels + i,
                     ((ky * c.kernel_width + kx) * c.channels + i) * c.out_channels + o,
                     ((b * c.out_height + oy) * c.out_width + ox) * c.out_channels + o);
          }
}

struct Sizes {
  int64_t x, w, y;
  explicit Sizes(const weft::Convolution& c)
      : x(c.batch * c.height * c.width * c.channels),
        w(c.kernel_height * c.kernel_width * c.channels * c.out_channels),
        y(c.batch * c.out_height * c.out_width * c.out_channels) {}
};

const std::vector<weft::Convolution> convolutions = {
    geometry(2, 7, 1, 3, 32, 2, 1, 1),   geometry(3, 8, 32, 3, 5, 2, 1, 1),    geometry(2, 5, 3, 1, 7, 1, 0, 1),
    geometry(1, 9, 4, 3, 16, 1, 2, 2),   geometry(2, 6, 5, 2, 33, 3, 1, 1),    geometry(0, 6, 3, 3, 4, 1, 1, 1),
    geometry(65, 12, 13, 3, 3, 1, 1, 1), geometry(8, 13, 32, 3, 101, 2, 1, 1), geometry(0, 13, 32, 3, 101, 2, 1, 1)};

}  // namespace

TEMPLATE_TEST_CASE("a matrix product matches its defining sum", "[cpu][gemm]", float, double) {
  for_each_product<TestType>({1, 2, 3, 7, 13, 33, 65, 100, 112}, {1, 7, 33, 400}, [](const Product<TestType>& product) {
    CAPTURE(product.transpose_a, product.transpose_b, product.m, product.n, product.k);
    REQUIRE(error(product.run(), product.expected(), product.k) < 1);
  });
}

TEMPLATE_TEST_CASE("a matrix product scales, accumulates and adds the bias", "[cpu][gemm]", float, double) {
  for_each_product<TestType>({1, 13, 50, 64, 112}, {5, 784}, [](const Product<TestType>& product) {
    const Epilogue<TestType> epilogue = demanding(product);
    CAPTURE(product.transpose_a, product.transpose_b, product.m, product.n, product.k);
    REQUIRE(error(product.run(epilogue), product.expected(epilogue), product.k) < 1);
  });
}

TEST_CASE("multiply-adds in f64 have the bits of std::fma", "[cpu][gemm]") {
  std::mt19937 random(1);
  const auto any = [&] { return std::bit_cast<float>(uint32_t(random())); };
  std::vector<std::array<float, 3>> cases;
  for (int i = 0; i < 200'000; ++i) cases.push_back({any(), any(), any()});
  // Halfway between two neighbours, and off by less than f64 can tell: of a normal number, and of a small one.
  for (int i = 0; i < 50'000; ++i) {
    const float sign = random() % 2 ? 1.0f : -1.0f, above = 1 + 0x1p-20f, below = 1 - 0x1p-20f;
    const float normal = 1 + float(random() % (1 << 23)) * 0x1p-23f, small = float(random() % (1 << 20)) * 0x1p-149f;
    for (const float factor : {above, below, 1.0f}) {
      cases.push_back({sign * 0x1p-12f * factor, 0x1p-12f * below, normal});
      cases.push_back({sign * 0x1p-75f * factor, 0x1p-75f * below, small});
    }
  }
  for (const float x : {0.0f, -0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::denorm_min()})
    for (const float y : {0.0f, -0.0f, -1.0f, std::numeric_limits<float>::max()})
      for (const float z : {0.0f, -0.0f, -x, x}) cases.push_back({x, y, z});
  int different = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [x, y, z] = cases[i];
    FourFloats a = {1, 1, 1, 1}, b = a, c = a;
    a[i % 4] = x, b[i % 4] = y, c[i % 4] = z;  // the others do not ask for std::fma
    const float is = multiply_add_in_f64(a, b, c)[i % 4], want = std::fma(x, y, z);
    different += std::bit_cast<uint32_t>(is) != std::bit_cast<uint32_t>(want) && !(std::isnan(is) && std::isnan(want));
  }
  CHECK(different == 0);
}

TEMPLATE_TEST_CASE("a matrix product with an empty dimension is empty or the bias", "[cpu][gemm]", float, double) {
  for_each_product<TestType>({0, 1, 35}, {0, 3}, [](const Product<TestType>& product) {
    Epilogue<TestType> epilogue;
    REQUIRE(error(product.run(epilogue), product.expected(epilogue), product.k) < 1);
    epilogue.bias = product.bias.data();
    REQUIRE(error(product.run(epilogue), product.expected(epilogue), product.k) < 1);
  });
}

TEMPLATE_TEST_CASE("a matrix product's row has the same bits for any number of rows", "[cpu][gemm]", float, double) {
  for_each_product<TestType>({3, 20, 100, 112}, {1, 40, 800}, [](const Product<TestType>& product) {
    const Epilogue<TestType> epilogue = demanding(product);
    const std::vector<TestType> whole = product.run(epilogue);
    std::vector<TestType> parts = product.c();
    for (int64_t row = 0, count = 1; row < product.m; row += count, count = std::min(count + 1, product.m - row))
      gemm(product.transpose_a, product.transpose_b, count, product.n, product.k, product.a_from(row), product.lda,
           product.b.data(), product.ldb, parts.data() + row * product.ldc, product.ldc, epilogue);
    CAPTURE(product.transpose_a, product.transpose_b, product.m, product.n, product.k);
    REQUIRE(parts == whole);
  });
}

TEMPLATE_TEST_CASE("packing the right matrix in advance changes no bit", "[cpu][gemm]", float, double) {
  PackedB<TestType> packed;
  for_each_product<TestType>({1, 20, 100, 112}, {0, 40, 800}, [&](const Product<TestType>& product) {
    const Epilogue<TestType> epilogue = demanding(product);
    packed.pack(product.transpose_b, product.n, product.k, product.b.data(), product.ldb);
    std::vector<TestType> result = product.c();
    gemm(product.transpose_a, product.m, product.a.data(), product.lda, packed, result.data(), product.ldc, epilogue);
    REQUIRE(result == product.run(epilogue));
  });
}

TEST_CASE("the finish hook sees every complete element once, at its place", "[cpu][gemm]") {
  const Product<float> product{false, false, 30, 1500, 400};
  struct Seen {
    const Product<float>& product;
    std::vector<float> values;
    int64_t count = 0;
  } seen{product, product.c()};
  Epilogue<float> epilogue;
  epilogue.context = &seen;
  epilogue.finish = [](void* context, float* values, int64_t row, int64_t column, int64_t count) {
    Seen& seen = *static_cast<Seen*>(context);
    std::copy_n(values, count, seen.values.begin() + row * seen.product.ldc + column);
    std::fill_n(values, count, -1.f);
    seen.count += count;
  };
  const std::vector<float> overwritten = product.run(epilogue);
  REQUIRE(seen.values == product.run());
  REQUIRE(seen.count == product.m * product.n);
  REQUIRE(std::count(overwritten.begin(), overwritten.end(), -1.f) == seen.count);
}

TEMPLATE_TEST_CASE("a convolution matches its defining sum", "[cpu][convolution]", float, double) {
  for (const weft::Convolution& c : convolutions) {
    const Sizes size(c);
    const auto x = uniform<TestType>(size.x, 1), w = uniform<TestType>(size.w, 2),
               bias = uniform<TestType>(c.out_channels, 3);
    std::vector<TestType> y(size.y);
    std::vector<double> want(size.y);
    for (int64_t i = 0; i < size.y; ++i) want[i] = -double(bias[i % c.out_channels]);
    for_each_term(c, [&](int64_t i, int64_t j, int64_t o) { want[o] -= double(x[i]) * double(w[j]); });
    Epilogue<TestType> epilogue;
    epilogue.bias = bias.data();
    struct Place {
      TestType* y;
      int64_t columns;
    } place{y.data(), c.out_channels};
    epilogue.context = &place;
    epilogue.finish = [](void* context, TestType* values, int64_t row, int64_t column, int64_t count) {
      const Place& place = *static_cast<Place*>(context);
      REQUIRE(values == place.y + row * place.columns + column);
      for (int64_t i = 0; i < count; ++i) values[i] = -values[i];
    };
    forward(c, x.data(), w.data(), y.data(), epilogue);
    REQUIRE(error(y, want, c.kernel_height * c.kernel_width * c.channels) < 1);
  }
}

TEMPLATE_TEST_CASE("the gradients of a convolution are its adjoints", "[cpu][convolution]", float, double) {
  for (const weft::Convolution& c : convolutions) {
    const Sizes size(c);
    const auto x = uniform<TestType>(size.x, 1), w = uniform<TestType>(size.w, 2), g = uniform<TestType>(size.y, 3),
               bias = uniform<TestType>(c.channels, 4);
    std::vector<TestType> dx(size.x, 9), dw(size.w, 9);
    std::vector<double> want_dx(size.x), want_dw(size.w);
    for (int64_t i = 0; i < size.x; ++i) want_dx[i] = double(bias[i % c.channels]);
    for_each_term(c, [&](int64_t i, int64_t j, int64_t o) {
      want_dx[i] += double(g[o]) * double(w[j]);
      want_dw[j] += double(g[o]) * double(x[i]);
    });
    input_gradient(c, g.data(), w.data(), dx.data(), bias.data());
    weight_gradient(c, x.data(), g.data(), dw.data());
    REQUIRE(error(dx, want_dx, c.kernel_height * c.kernel_width * c.out_channels) < 1);
    REQUIRE(error(dw, want_dw, c.batch * c.out_height * c.out_width) < 1);
  }
}

TEST_CASE("a convolution's image has the same bits whatever the rest of its batch", "[cpu][convolution]") {
  for (const weft::Convolution& whole : convolutions) {
    weft::Convolution single = whole;
    single.batch = 1;
    const Sizes size(whole), part(single);
    const auto x = uniform<float>(size.x, 1), w = uniform<float>(size.w, 2), g = uniform<float>(size.y, 3);
    std::vector<float> y(size.y), dx(size.x), single_y(size.y), single_dx(size.x);
    forward(whole, x.data(), w.data(), y.data());
    input_gradient(whole, g.data(), w.data(), dx.data());
    for (int64_t b = 0; b < whole.batch; ++b) {
      forward(single, x.data() + b * part.x, w.data(), single_y.data() + b * part.y);
      input_gradient(single, g.data() + b * part.y, w.data(), single_dx.data() + b * part.x);
    }
    REQUIRE(single_y == y);
    REQUIRE(single_dx == dx);
  }
}
