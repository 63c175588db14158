// SPDX-License-Identifier: Apache-2.0
// The CPU backend's verbs on rows, matrices, indices, images and random streams, against plain loops.
#include <algorithm>
#include <numeric>

#include "tests/kernels/cpu_backend_checks.h"
#include "weft/engine/kernels/scalar_ops.h"

using namespace weft;
using namespace weft::checks;

namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

// y[b] = a[b] b[b] for matrices (rows, columns), after the optional transpositions.
Values multiplied(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b, const Shape& y) {
  const int64_t m = y[-2], n = y[-1], k = a.shape()[transpose_a ? -2 : -1];
  const Values va = a.values(), vb = b.values();
  Values result(index(y.size()));
  for (int64_t i = 0; i < y.size(); ++i) {
    const int64_t batch = i / (m * n), row = i / n % m, column = i % n;
    const int64_t from_a = a.shape().rank() == 2 ? 0 : batch * m * k,
                  from_b = b.shape().rank() == 2 ? 0 : batch * k * n;
    for (int64_t p = 0; p < k; ++p)
      result[index(i)] += va[index(from_a + (transpose_a ? p * m + row : row * k + p))] *
                          vb[index(from_b + (transpose_b ? column * k + p : p * n + column))];
  }
  return result;
}

// Calls f(output pixel, tap, input pixel) for each tap of each window that lies inside the image.
template <class F> void for_each_tap(const Convolution& c, F f) {
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t oy = 0; oy < c.out_height; ++oy)
      for (int64_t ox = 0; ox < c.out_width; ++ox)
        for (int64_t ky = 0; ky < c.kernel_height; ++ky)
          for (int64_t kx = 0; kx < c.kernel_width; ++kx) {
            const int64_t iy = oy * c.stride_y - c.pad_y + ky * c.dilation_y,
                          ix = ox * c.stride_x - c.pad_x + kx * c.dilation_x;
            if (iy < 0 || iy >= c.height || ix < 0 || ix >= c.width) continue;
            f((b * c.out_height + oy) * c.out_width + ox, ky * c.kernel_width + kx, (b * c.height + iy) * c.width + ix);
          }
}
Convolution convolution(int64_t size, int64_t channels, int64_t kernel, int64_t out, int64_t stride, int64_t pad,
                        int64_t dilation) {
  const auto extent = [&](int64_t n) { return (n + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1; };
  return {2,   size,   size + 1, channels, kernel, kernel,   extent(size), extent(size + 1),
          out, stride, stride,   pad,      pad,    dilation, dilation};
}
const std::vector<Convolution> geometries = {convolution(5, 3, 3, 4, 1, 1, 1), convolution(6, 8, 3, 5, 2, 1, 1),
                                             convolution(7, 2, 3, 3, 1, 2, 2), convolution(4, 5, 1, 2, 1, 0, 1)};

// Those that are computed by transforms (winograd.h): many channels, and sides of whole tiles or not.
Convolution many_channels(int64_t batch, int64_t height, int64_t width, int64_t channels, int64_t out, int64_t pad_y,
                          int64_t pad_x) {
  return {.batch = batch,
          .height = height,
          .width = width,
          .channels = channels,
          .kernel_height = 3,
          .kernel_width = 3,
          .out_height = height + 2 * pad_y - 2,
          .out_width = width + 2 * pad_x - 2,
          .out_channels = out,
          .pad_y = pad_y,
          .pad_x = pad_x};
}
const std::vector<Convolution> transformed = {
    many_channels(3, 4, 6, 64, 67, 1, 1), many_channels(2, 6, 4, 67, 64, 0, 1),  many_channels(1, 2, 8, 64, 64, 2, 0),
    many_channels(0, 4, 4, 64, 64, 1, 1), many_channels(30, 4, 4, 65, 70, 1, 2), many_channels(9, 12, 14, 64, 64, 1, 1),
    many_channels(2, 7, 7, 64, 65, 1, 1), many_channels(1, 5, 11, 66, 64, 1, 1)};

// The sums over taps, in f64.
struct Sums {
  Values y, dx, dw;
};
Sums over_taps(const Convolution& c, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& g) {
  const Values vx = x.values(), vw = w.values(), vg = g.values(), offsets = bias.values();
  Sums sums{Values(vg.size()), Values(vx.size()), Values(vw.size())};
  for (size_t i = 0; i < sums.y.size(); ++i) sums.y[i] = offsets[i % offsets.size()];
  for_each_tap(c, [&](int64_t pixel, int64_t tap, int64_t source) {
    for (int64_t i = 0; i < c.channels; ++i)
      for (int64_t o = 0; o < c.out_channels; ++o) {
        const size_t in = index(source * c.channels + i), out = index(pixel * c.out_channels + o);
        const size_t weight = index((tap * c.channels + i) * c.out_channels + o);
        sums.y[out] += vx[in] * vw[weight];
        sums.dx[in] += vg[out] * vw[weight];
        sums.dw[weight] += vx[in] * vg[out];
      }
  });
  return sums;
}

// The root of the mean square of the error, over that of the values, in units of rounding.
double rounding(const Tensor& y, const Values& expected) {
  const Values values = y.values();
  double errors = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    errors += (values[i] - expected[i]) * (values[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return squares == 0 ? errors : std::sqrt(errors / squares) * (y.dtype() == DType::f32 ? 0x1p24 : 0x1p53);
}

struct Product {
  Shape a, b, y;
};
const std::vector<Product> products = {{{3, 4}, {4, 5}, {3, 5}},       {{1, 1}, {1, 1}, {1, 1}},
                                       {{17, 40}, {40, 33}, {17, 33}}, {{2, 3, 4, 5}, {2, 3, 5, 7}, {2, 3, 4, 7}},
                                       {{6, 3, 4}, {4, 5}, {6, 3, 5}}, {{3, 4}, {6, 4, 5}, {6, 3, 5}},
                                       {{3, 0}, {0, 5}, {3, 5}},       {{2, 0, 4}, {4, 5}, {2, 0, 5}}};

}  // namespace

TEST_CASE("gather, scatter and one-hot move the rows that the indices name") {
  for (const DType type : all_types)
    for (const int64_t row : {0, 1, 3, 40})
      for (const int64_t count : {0, 1, 30}) {
        const Tensor x = sample({9, row}, type), indices = integers({count}, 9), back = sample({count, row}, type);
        const Values values = x.values(), at = indices.values(), added = back.values();
        Values gathered, sums(index(9 * row)), hot(index(count * 9));
        for (int64_t i = 0; i < count; ++i) {
          hot[index(i * 9) + size_t(at[index(i)])] = 1;
          for (int64_t j = 0; j < row; ++j) {
            gathered.push_back(values[size_t(at[index(i)]) * index(row) + index(j)]);
            sums[size_t(at[index(i)]) * index(row) + index(j)] += added[index(i * row + j)];
          }
        }
        Tensor y({count, row}, type), one({count, 9}, type), into = sample({9, row}, type);
        const Indices chosen({"a test", "index"}, indices, 9);
        cpu().gather_rows(x, chosen, y);
        CHECK(close(y, gathered, 0));
        cpu().one_hot(chosen, one);
        CHECK(close(one, hot, 0));
        if (!is_floating(type)) continue;
        cpu().scatter_add_rows(back, chosen, into);
        CHECK(close(into, sums, 1));
      }
}

TEST_CASE("copy_slab copies the selected slices and leaves the others unchanged") {
  for (const DType type : all_types)
    for (const int64_t inner : {0, 1, 6}) {
      const Along from(3, 5, inner), to(3, 7, inner);
      const Tensor x = sample(shape_of(from), type);
      Tensor y = sample(shape_of(to), type);
      const Values source = x.values();
      Values expected = y.values();
      for_each(Along(3, 2, inner),
               [&](int64_t o, int64_t e, int64_t j) { expected[at(to, o, e + 4, j)] = source[at(from, o, e + 1, j)]; });
      cpu().copy_slab(x, from, 1, y, to, 4, 2);
      CHECK(close(y, expected, 0));
    }
}

TEST_CASE("permute puts every element in its place") {
  for (const Shape& shape : {Shape{7}, Shape{}, Shape{37, 70}, Shape{1, 3, 1}, Shape{5, 40, 33}, Shape{3, 0, 2},
                             Shape{2, 3, 4, 5}, Shape{2, 1, 3, 2, 5}}) {
    std::vector<int64_t> order(index(shape.rank()));
    std::iota(order.begin(), order.end(), 0);
    do {
      const Shape axes{std::span<const int64_t>(order)};
      Shape turned = shape;
      for (int i = 0; i < shape.rank(); ++i) turned = turned.with(i, shape[static_cast<int>(axes[i])]);
      for (const DType type : shape.rank() < 4 ? all_types : floating) {
        const Tensor x = sample(shape, type);
        Tensor y(turned, type);
        const Values values = x.values();
        Values expected(values.size());
        for (int64_t i = 0; i < y.size(); ++i) {
          int64_t rest = i, source = 0;
          for (int a = shape.rank() - 1; a >= 0; rest /= turned[a--])
            source += rest % turned[a] * shape.product(static_cast<int>(axes[a]) + 1, shape.rank());
          expected[index(i)] = values[index(source)];
        }
        cpu().permute(x, axes, y);
        CHECK(close(y, expected, 0));
      }
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

namespace {
// The row verbs by definition, for values v, each row's target t and its cotangent s.
struct Definitions {
  Values soft, log_soft, total, loss, cross, standard, scale, length;
  Definitions(const Values& v, const Values& t, const Values& s, int64_t rows, int64_t n)
      : soft(v), log_soft(v), total(index(rows)), loss(total), cross(v), standard(v), scale(total), length(total) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = [&](int64_t j) { return index(r * n + j); };
      double sum = 0, mean = 0, variance = 0.01, squares = 0;
      for (int64_t j = 0; j < n; ++j) sum += std::exp(v[row(j)]), mean += v[row(j)] / double(n);
      for (int64_t j = 0; j < n; ++j) squares += v[row(j)] * v[row(j)];
      length[index(r)] = std::sqrt(squares);
      for (int64_t j = 0; j < n; ++j) variance += std::pow(v[row(j)] - mean, 2) / double(n);
      scale[index(r)] = 1 / std::sqrt(variance);
      total[index(r)] = std::log(sum);
      loss[index(r)] = std::log(sum) - v[row(int64_t(t[index(r)]))];
      for (int64_t j = 0; j < n; ++j) {
        soft[row(j)] = std::exp(v[row(j)]) / sum;
        log_soft[row(j)] = v[row(j)] - std::log(sum);
        cross[row(j)] = s[index(r)] * (soft[row(j)] - (j == int64_t(t[index(r)])));
        standard[row(j)] = (v[row(j)] - mean) * scale[index(r)];
      }
    }
  }
};
}  // namespace

TEST_CASE("row verbs match their definitions") {
  for (const DType type : floating)
    for (const Shape& shape : {Shape{3, 1}, Shape{2, 2, 5}, Shape{4, 130}, Shape{0, 3}, Shape{7}}) {
      INFO(text(type) << " " << shape.text());
      const int64_t n = shape[-1], rows = shape.size() / n;
      const Tensor x = sample(shape, type), g = sample(shape, type), targets = integers({rows}, n),
                   per_row = sample({rows}, type);
      const Values v = x.values(), w = g.values(), t = targets.values(), s = per_row.values();
      const auto [soft, log_soft, total, loss, cross, standard, scale, length] = Definitions(v, t, s, rows, n);
      Tensor y = Tensor::like(x), out({rows}, type);
      cpu().log_sum_exp_rows(x, out);
      CHECK(close(out, total));
      const Indices classes({"a test", "target"}, targets, n);
      cpu().cross_entropy_rows(x, classes, out);
      CHECK(close(out, loss));
      cpu().cross_entropy_rows_pullback(x, classes, per_row, y);
      CHECK(close(y, cross));
      const auto pullback = [&](auto slope) {  // slope(element, sum over its row of the cotangent times y or 1)
        const Values values = y.values();
        Values result(v);
        for (size_t i = 0; i < v.size(); ++i) {
          double sum = 0, along = 0;
          for (size_t j = i / index(n) * index(n), end = j + index(n); j < end; ++j)
            sum += w[j], along += w[j] * values[j];
          result[i] = slope(values[i], w[i], sum, along, i / index(n));
        }
        return result;
      };
      Tensor dx = Tensor::like(x);
      cpu().normalize_rows(Normalizer::softmax, x, y);
      CHECK(close(y, soft));
      cpu().normalize_rows_pullback(Normalizer::softmax, y, g, dx);
      CHECK(close(dx, pullback([](double p, double u, double, double along, size_t) { return p * (u - along); })));
      cpu().normalize_rows(Normalizer::log_softmax, x, y);
      CHECK(close(y, log_soft));
      cpu().normalize_rows_pullback(Normalizer::log_softmax, y, g, dx);
      CHECK(close(dx, pullback([](double p, double u, double sum, double, size_t) { return u - std::exp(p) * sum; }),
                  32));
      for (const double epsilon : {0.01, 10.0}) {
        Tensor lengths({rows}, type == DType::bf16 ? DType::f32 : type);
        cpu().unit_rows(epsilon, x, y, lengths);
        CHECK(close(lengths, length));
        const auto divisor = [&](size_t r) { return std::max(length[r], epsilon); };
        Values unit = v;
        for (size_t i = 0; i < v.size(); ++i) unit[i] /= divisor(i / index(n));
        CHECK(close(y, unit));
        cpu().unit_rows_pullback(epsilon, x, lengths, g, dx);
        CHECK(close(dx, pullback([&](double p, double u, double, double along, size_t r) {
                      return (u - (length[r] < epsilon ? 0 : p * along)) / divisor(r);
                    }),
                    64));
      }
      cpu().standardize_rows(0.01, x, y, out);
      CHECK(close(y, standard, 32));
      CHECK(close(out, scale, 32));
      cpu().standardize_rows_pullback(y, out, g, dx);
      const Values rstd = out.values();
      CHECK(close(dx, pullback([&](double p, double u, double sum, double along, size_t r) {
                    return rstd[r] * (u - sum / double(n) - p * along / double(n));
                  }),
                  64));
    }
}

TEST_CASE("matmul multiplies single, batched and shared matrices in every transposition") {
  for (const DType type : floating)
    for (const auto& [a, b, y] : products)
      for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true}) {
          const auto stored = [](const Shape& s, bool transposed) {
            return transposed ? s.with(-1, s[-2]).with(-2, s[-1]) : s;
          };
          const Tensor left = sample(stored(a, transpose_a), type), right = sample(stored(b, transpose_b), type),
                       bias = sample({y[-1]}, type);
          Tensor out(y, type);
          Values expected = multiplied(left, transpose_a, right, transpose_b, y);
          cpu().matmul(left, transpose_a, right, transpose_b, {}, out);
          CHECK(close(out, expected));
          const Values offsets = bias.values();
          for (size_t i = 0; i < expected.size(); ++i) {
            expected[i] += offsets[i % offsets.size()];
            if (expected[i] < 0) expected[i] *= 0.5;
          }
          cpu().matmul(left, transpose_a, right, transpose_b, {&bias, {Unary::LeakyRelu, {0.5, 0}}}, out);
          CHECK(close(out, expected));
        }
}

TEST_CASE("convolution and its two adjoints match the sum over taps") {
  for (const DType type : floating) {
    std::vector<Convolution> all = geometries;
    if (type == DType::bf16) all.insert(all.end(), transformed.begin(), transformed.end());
    for (const Convolution& c : all) {
      const Tensor x = sample({c.batch, c.height, c.width, c.channels}, type), bias = sample({c.out_channels}, type);
      const Tensor w = sample({c.kernel_height, c.kernel_width, c.channels, c.out_channels}, type);
      const Tensor g = sample({c.batch, c.out_height, c.out_width, c.out_channels}, type);
      const Sums expected = over_taps(c, x, w, bias, g);
      Tensor y = Tensor::like(g), dx = Tensor::like(x), dw = Tensor::like(w);
      cpu().convolve(c, x, w, {&bias, {Unary::Relu, {}}}, y);
      CHECK(close(y, mapped([](double v) { return std::max(v, 0.0); }, expected.y)));
      cpu().convolve_input_gradient(c, g, w, dx);
      CHECK(close(dx, expected.dx));
      cpu().convolve_weight_gradient(c, x, g, dw);
      CHECK(close(dw, expected.dw));
    }
  }
}

// Transforms round where a sum of quarters over taps is exact. So f32 gets data whose sums are exact in neither way;
// f64 gets quarters, since their sums are known. There a corner of each image is empty, and beside it pixels have their
// last channel alone. The limit is 7.2e-7.
TEST_CASE("convolutions by transforms have the rounding errors that are told") {
  const auto normal = [](const Shape& shape) {
    Values values(index(shape.size()));
    for (double& v : values) v = std::normal_distribution()(generator());
    return Tensor::from(shape, values, DType::f32);
  };
  std::vector<Convolution> all = transformed;
  all.insert(all.end(), {many_channels(1, 8, 8, 256, 64, 1, 1), many_channels(1, 4, 4, 64, 512, 1, 1),
                         many_channels(20, 8, 32, 64, 64, 1, 1)});
  for (const DType type : {DType::f32, DType::f64})
    for (const Convolution& c : all) {
      const auto drawn = [&](const Shape& shape) { return type == DType::f32 ? normal(shape) : sample(shape, type); };
      const auto images = [&](const Shape& shape) {
        const Tensor whole = drawn(shape);
        if (type == DType::f32) return whole;
        Values values = whole.values();
        for (int64_t i = 0; i < whole.size(); ++i) {
          const int64_t pixel = i / shape[3], diagonal = pixel % shape[2] + pixel / shape[2] % shape[1];
          const int64_t third = diagonal * 3 / (shape[1] + shape[2]);
          if (third == 0 || (third == 1 && i % shape[3] < shape[3] - 1)) values[index(i)] = 0;
        }
        return Tensor::from(shape, values, type);
      };
      const Tensor x = images({c.batch, c.height, c.width, c.channels}), bias = drawn({c.out_channels});
      const Tensor w = drawn({3, 3, c.channels, c.out_channels});
      const Tensor g = images({c.batch, c.out_height, c.out_width, c.out_channels});
      const Sums expected = over_taps(c, x, w, bias, g);
      Tensor y = Tensor::like(g), dx = Tensor::like(x), dw = Tensor::like(w);
      cpu().convolve(c, x, w, {&bias, {Unary::Relu, {}}}, y);
      cpu().convolve_input_gradient(c, g, w, dx);
      cpu().convolve_weight_gradient(c, x, g, dw);
      CAPTURE(text(type), c.batch, c.height, c.width, c.channels, c.out_channels);
      CHECK(rounding(y, mapped([](double v) { return std::max(v, 0.0); }, expected.y)) < 12);
      CHECK(rounding(dx, expected.dx) < 12);
      CHECK(rounding(dw, expected.dw) < 12);
    }
}

// Else a layer norm of such a pixel makes features of what was rounded.
TEST_CASE("convolution and its input gradient are exactly zero where their windows are") {
  const auto zero_left_of = [](int64_t border, const Shape& shape, DType type) {
    Values values(index(shape.size()));
    for (size_t i = 0; i < values.size(); ++i)
      if (int64_t(i) / shape[3] % shape[2] >= border) values[i] = std::normal_distribution()(generator());
    return Tensor::from(shape, values, type);
  };
  const auto zero_where_untouched = [](const Tensor& y, const std::vector<bool>& touched) {
    const Values values = y.values();
    for (size_t i = 0; i < values.size(); ++i)
      if (!touched[i / index(y.shape()[3])] && values[i] != 0) return false;
    return true;
  };
  std::vector<Convolution> all = geometries;
  all.insert(all.end(), transformed.begin(), transformed.end());
  for (const DType type : {DType::f32, DType::f64})
    for (const Convolution& c : all)
      for (int64_t border = 1; border <= std::min(c.width, c.out_width); ++border) {
        const Tensor x = zero_left_of(border, {c.batch, c.height, c.width, c.channels}, type);
        const Tensor g = zero_left_of(border, {c.batch, c.out_height, c.out_width, c.out_channels}, type);
        const Tensor w = zero_left_of(0, {c.kernel_height, c.kernel_width, c.channels, c.out_channels}, type);
        std::vector<bool> of_y(index(c.batch * c.out_height * c.out_width)), of_dx(index(c.batch * c.height * c.width));
        for_each_tap(c, [&](int64_t pixel, int64_t, int64_t source) {
          if (source % c.width >= border) of_y[index(pixel)] = true;
          if (pixel % c.out_width >= border) of_dx[index(source)] = true;
        });
        Tensor y = Tensor::like(g), dx = Tensor::like(x);
        cpu().convolve(c, x, w, {}, y);
        cpu().convolve_input_gradient(c, g, w, dx);
        CAPTURE(text(type), border, c.height, c.width, c.channels, c.out_channels);
        CHECK(zero_where_untouched(y, of_y));
        CHECK(zero_where_untouched(dx, of_dx));
      }
}

TEST_CASE("unfold lists the windows of an image, and fold sums them") {
  for (const DType type : floating)
    for (const Convolution& c : geometries) {
      const int64_t pixels = c.batch * c.out_height * c.out_width, taps = c.kernel_height * c.kernel_width;
      const Tensor x = sample({c.batch, c.height, c.width, c.channels}, type),
                   windows = sample({pixels, taps, c.channels}, type);
      Tensor unfolded = Tensor::like(windows), folded = Tensor::like(x);
      const Values values = x.values(), each = windows.values();
      Values expected(each.size(), 0), sums(values.size(), 0);
      for_each_tap(c, [&](int64_t pixel, int64_t tap, int64_t source) {
        for (int64_t i = 0; i < c.channels; ++i) {
          expected[index((pixel * taps + tap) * c.channels + i)] = values[index(source * c.channels + i)];
          sums[index(source * c.channels + i)] += each[index((pixel * taps + tap) * c.channels + i)];
        }
      });
      cpu().unfold(c, x, unfolded);
      CHECK(close(unfolded, expected, 0));
      cpu().fold(c, windows, folded);
      CHECK(close(folded, sums, 1));
    }
}

TEST_CASE("random verbs give element i the i-th draw") {
  const Random random{3, 5, 7};
  for (const int64_t n : {0, 1, 3, 1500}) {
    Tensor single({n}), wide({n}, DType::f64), brief({n}, DType::bf16);
    Values singles(index(n)), wides(singles);
    for (int64_t i = 0; i < n; ++i) {
      singles[index(i)] = uniform_draw<float>(random, uint64_t(i));
      wides[index(i)] = uniform_draw<double>(random, uint64_t(i));
    }
    cpu().uniform(random, 0, 1, single);
    CHECK(single.values() == singles);
    cpu().uniform(random, 0, 1, wide);
    CHECK(wide.values() == wides);
    cpu().uniform(random, -1, 3, brief);
    CHECK(close(brief, mapped([](double u) { return 4 * u - 1; }, singles), 1));
    cpu().normal(random, 2, 3, wide);
    for (int64_t i = 0; i < n; ++i) wides[index(i)] = 2 + 3 * normal_draw<double>(random, uint64_t(i));
    CHECK(close(wide, wides));
  }
}
