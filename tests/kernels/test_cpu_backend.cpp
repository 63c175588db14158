// SPDX-License-Identifier: Apache-2.0
// The CPU backend's elementwise verbs and those along an axis, against the plainest loops with the same meaning.
#include <algorithm>
#include <numeric>

#include "tests/kernels/cpu_backend_checks.h"
#include "weft/engine/kernels/scalar_ops.h"

using namespace weft;
using namespace weft::checks;

namespace {

const std::vector<Along> views = {{1, 1, 1},    {3, 5, 1},  {2, 7, 3},   {1, 1003, 1}, {2, 130, 40},
                                  {1, 70, 601}, {5, 64, 1}, {2, 129, 1}, {1, 99, 31},  {40, 3, 1},
                                  {2, 1, 700},  {0, 3, 2},  {3, 4, 0},   {3, 0, 4}};

}  // namespace

TEST_CASE("tensor memory is aligned and goes back to the pool") {
  const int64_t live = cpu().memory().live_bytes;
  {
    const Tensor x({3}), empty({0, 4});
    CHECK(reinterpret_cast<uintptr_t>(x.data()) % 64 == 0);
    CHECK(cpu().memory().live_bytes > live);
  }
  CHECK(cpu().memory().live_bytes == live);
}

TEST_CASE("fill and cast work for every pair of types") {
  for (const DType from : all_types)
    for (const int64_t n : {0, 1, 37, 1030}) {
      const Tensor x = sample({n}, from, 0, 9);
      CHECK(close(Tensor::full({n}, 3, from), Values(static_cast<size_t>(n), 3)));
      for (const DType to : all_types)
        CHECK(close(x.to(to), mapped([&](double v) { return is_floating(to) ? v : std::trunc(v); }, x.values()), 0));
    }
}

TEST_CASE("every unary op and its two derivatives match their formulas, also in place") {
  const Scalars scalars{0.5, 1.5};
  for (const DType type : floating)
    for (const Unary op : listed<Unary>(static_cast<int>(Unary::Round) + 1))
      for (const int64_t n : {0, 1, 5, 700}) {
        INFO(text(type) << " op " << int(op));
        const Tensor x = sample({n}, type, 0.25, 2), g = sample({n}, type), h = sample({n}, type);
        Tensor y = Tensor::like(x), in_place = x.clone();
        with(op, scalars, [&](const auto& o) {
          cpu().unary(op, scalars, x, y);
          CHECK(close(y, mapped([&](double v) { return o.f(v); }, x.values())));
          cpu().unary(op, scalars, in_place, in_place);
          CHECK(in_place.values() == y.values());
          cpu().slope(op, scalars, x, g, y);
          CHECK(close(y, mapped([&](double v, double w) { return o.df(v) * w; }, x.values(), g.values()), 64));
          cpu().curvature(op, scalars, x, g, h, y);
          const auto curve = [&](double v, double w, double u) { return o.ddf(v) * w * u; };
          CHECK(close(y, mapped(curve, x.values(), g.values(), h.values()), 256));
          in_place = g.clone();
          cpu().curvature(op, scalars, x, in_place, h, in_place);
          CHECK(in_place.values() == y.values());
        });
      }
}

TEST_CASE("binary ops match their formulas, on whole tensors and along an axis") {
  for (const DType type : all_types)
    for (const Binary op : listed<Binary>(static_cast<int>(Binary::MaximumShare) + 1)) {
      const bool exact = op == Binary::Add || op == Binary::Subtract || op == Binary::Multiply ||
                         op == Binary::Minimum || op == Binary::Maximum;
      INFO(text(type) << " op " << int(op));
      if (!is_floating(type) && !exact) {
        Tensor x = Tensor::zeros({1}, type);
        CHECK_THROWS_AS(cpu().binary(op, x, x, x), Error);
        continue;
      }
      const auto f = [&](double a, double b) {
        double result = 0;
        with(op, [&](auto o) { result = o(a, b); });
        return type == DType::u8 ? static_cast<double>(static_cast<uint8_t>(static_cast<int>(result))) : result;
      };
      for (const Along along : views) {
        const Tensor a = sample(shape_of(along), type, 0.25, 3), b = sample(shape_of(along), type),
                     v = sample({along.extent}, type);
        Tensor y = Tensor::like(a), in_place = a.clone();
        cpu().binary(op, a, b, y);
        CHECK(close(y, mapped(f, a.values(), b.values())));
        cpu().binary(op, in_place, b, in_place);
        CHECK(in_place.values() == y.values());
        Values placement(static_cast<size_t>(a.size()));
        const Values per_slice = v.values();
        for_each(along, [&](int64_t o, int64_t e, int64_t j) {
          placement[at(along, o, e, j)] = per_slice[static_cast<size_t>(e)];
        });
        cpu().binary_along(op, a, v, along, y);
        CHECK(close(y, mapped(f, a.values(), placement)));
        in_place = a.clone();
        cpu().binary_along(op, in_place, v, along, in_place);
        CHECK(in_place.values() == y.values());
      }
    }
}

TEST_CASE("maximum and minimum return NaN if either input is NaN") {
  const Tensor a = Tensor::from({4}, {not_a_number, 1, not_a_number, 1}),
               b = Tensor::from({4}, {1, not_a_number, not_a_number, 2});
  Tensor y = Tensor::like(a);
  cpu().binary(Binary::Maximum, a, b, y);
  CHECK(close(y, {not_a_number, not_a_number, not_a_number, 2}));
  cpu().binary(Binary::Minimum, a, b, y);
  CHECK(close(y, {not_a_number, not_a_number, not_a_number, 1}));
}

TEST_CASE("compare, where and accumulate match their definitions") {
  for (const DType type : all_types)
    for (const int64_t n : {0, 1, 3, 600}) {
      Tensor a = sample({n}, type), b = sample({n}, type), y = Tensor::like(a), less({n}, DType::u8);
      if (is_floating(type) && n > 2) a = Tensor::full({n}, not_a_number, type);
      cpu().compare(Comparison::Less, a, b, less);
      CHECK(close(less, mapped([](double v, double w) { return v < w; }, a.values(), b.values())));
      cpu().compare(Comparison::NotEqual, a, b, less);
      CHECK(close(less, mapped([](double v, double w) { return v != w; }, a.values(), b.values())));
      const Tensor condition = integers({n}, 2).to(DType::u8);
      cpu().where(condition, a, b, y);
      CHECK(close(y, mapped([](double c, double v, double w) { return c != 0 ? v : w; }, condition.values(), a.values(),
                            b.values())));
      if (!is_floating(type)) continue;
      const Values before = b.values(), step = y.values();
      cpu().accumulate(-1.5, y, b);
      CHECK(close(b, mapped([](double sum, double v) { return sum - 1.5 * v; }, before, step)));
    }
}

TEST_CASE("reductions along any axis match their definitions") {
  const auto combine = [](Reduction op, double a, double b) {
    if (op == Reduction::sum) return a + b;
    if (op == Reduction::product) return a * b;
    return std::isnan(a) || std::isnan(b) ? not_a_number : op == Reduction::maximum ? std::max(a, b) : std::min(a, b);
  };
  for (const DType type : all_types)
    for (const Reduction op : listed<Reduction>(4))
      for (const Along along : views) {
        INFO(text(type) << " op " << int(op) << " of " << shape_of(along).text());
        const bool product = op == Reduction::product;
        Tensor x = product ? Tensor::full(shape_of(along), 1, type) : sample(shape_of(along), type),
               y(reduced(along), type);
        if (product && x.size() > 0)
          x.slice(0, 1).copy_from(Tensor::full(shape_of(along).with(0, 1), is_floating(type) ? -1 : 1, type));
        const double lowest = type == DType::u8 ? 0 : type == DType::i64 ? -0x1p63 : -infinity;
        const double highest = type == DType::u8 ? 255 : type == DType::i64 ? 0x1p63 : infinity;
        Values expected(static_cast<size_t>(y.size()), std::vector{0.0, 1.0, lowest, highest}[static_cast<size_t>(op)]);
        const Values values = x.values();
        for_each(along, [&](int64_t o, int64_t e, int64_t j) {
          double& sum = expected[static_cast<size_t>(o * along.inner + j)];
          sum = combine(op, sum, values[at(along, o, e, j)]);
        });
        if (type == DType::u8) expected = mapped([](double v) { return std::fmod(v, 256); }, expected);
        cpu().reduce(op, x, along, y);
        CHECK(close(y, expected, 1));
      }
}

TEST_CASE("a float sum is accurate and does not depend on the other outer slices") {
  const Along along(3, 100003, 1), columns(1, 100003, 3);
  const Tensor x = Tensor::uniform({3, 100003}, Random{1, 2});
  Tensor y({3}), alone({1}), down({3});
  cpu().reduce(Reduction::sum, x, along, y);
  cpu().reduce(Reduction::sum, x.slice(1, 2), Along(1, 100003, 1), alone);
  CHECK(alone.item() == y.values()[1]);
  const Values values = x.values();
  const double exact = std::accumulate(values.begin(), values.begin() + 100003, 0.0);
  CHECK(std::abs(y.values()[0] - exact) < 3e-7 * exact);
  cpu().reduce(Reduction::sum, x, columns, down);
  double column = 0;
  for (size_t i = 0; i < values.size(); i += 3) column += values[i];
  CHECK(std::abs(down.values()[0] - column) < 3e-7 * column);
}

TEST_CASE("NaN wins every maximum and minimum, and the index is that of the first extreme") {
  for (const DType type : floating)
    for (const int64_t inner : {1, 3, 40}) {
      const Along along(1, 90, inner);
      Tensor x = Tensor::full(shape_of(along), 1, type), y({inner}, type), index({inner}, DType::i64);
      x.slice(0, 1).reshape({90, inner}).slice(7, 9).copy_from(Tensor::full({2, inner}, 2, type));
      for (const Reduction op : {Reduction::maximum, Reduction::minimum}) {
        cpu().arg_reduce(op, x, along, index);
        CHECK(close(index, Values(static_cast<size_t>(inner), op == Reduction::maximum ? 7 : 0)));
      }
      x.reshape({90, inner}).slice(30, 32).copy_from(Tensor::full({2, inner}, not_a_number, type));
      for (const Reduction op : {Reduction::maximum, Reduction::minimum}) {
        cpu().reduce(op, x, along, y);
        CHECK(close(y, Values(static_cast<size_t>(inner), not_a_number)));
        cpu().arg_reduce(op, x, along, index);
        CHECK(close(index, Values(static_cast<size_t>(inner), 30)));
      }
    }
}

TEST_CASE("verbs along an axis match loops over its elements") {
  for (const DType type : all_types)
    for (const Along along : views) {
      INFO(text(type) << " of " << shape_of(along).text());
      const int64_t extent = along.extent, inner = along.inner;
      const Tensor x = sample(shape_of(along), type), line = sample(reduced(along), type);
      const Values values = x.values(), once = line.values();
      Values total(static_cast<size_t>(extent)), placement(values), turned(values), running(values),
          first(once.size(), 0);
      for_each(along, [&](int64_t o, int64_t e, int64_t j) {
        const size_t here = at(along, o, e, j), lane = static_cast<size_t>(o * inner + j);
        total[static_cast<size_t>(e)] += values[here];
        placement[here] = once[lane];
        turned[here] = values[at(along, o, extent - 1 - e, j)];
        running[here] = 0;
        for (int64_t i = e; i < extent; ++i) running[here] += values[at(along, o, i, j)];
        if (values[here] > values[at(along, o, static_cast<int64_t>(first[lane]), j)])
          first[lane] = static_cast<double>(e);
      });
      const auto wrapped = [&](const Values& v) {
        return type == DType::u8 ? mapped([](double w) { return std::fmod(w, 256); }, v) : v;
      };
      Tensor y = Tensor::like(x), outside({extent}, type), index(reduced(along), DType::i64);
      cpu().reduce_outside(x, along, outside);
      CHECK(close(outside, wrapped(total), 1));
      cpu().repeat(line, along, y);
      CHECK(close(y, placement, 0));
      cpu().flip(x, along, y);
      CHECK(close(y, turned, 0));
      cpu().cumulative_sum(x, along, true, y);
      CHECK(close(y, wrapped(running), 1));
      Tensor back = Tensor::like(x), sums = Tensor::like(x);
      cpu().flip(x, along, back);
      cpu().cumulative_sum(back, along, false, sums);
      cpu().flip(sums, along, back);
      CHECK(back.values() == y.values());
      if (extent == 0) continue;
      cpu().arg_reduce(Reduction::maximum, x, along, index);
      CHECK(close(index, first));
    }
}

TEST_CASE("top_k is a stable sort in which NaN is the largest") {
  for (const DType type : all_types)
    for (const Along along : views)
      for (const bool largest : {true, false}) {
        const int64_t outer = along.outer, extent = along.extent, inner = along.inner;
        const Tensor x = sample(shape_of(along), type);
        if (is_floating(type) && x.size() > 3)
          x.reshape({x.size()}).slice(1, 3).copy_from(Tensor::full({2}, not_a_number, type));
        const Values values = x.values();
        for (const int64_t k : {extent, std::min<int64_t>(extent, 3)}) {
          Tensor top({outer, k, inner}, type), index({outer, k, inner}, DType::i64);
          cpu().top_k(x, along, k, largest, top, index);
          Values expected(static_cast<size_t>(outer * k * inner)), places(expected);
          for_each(Along(outer, 1, inner), [&](int64_t o, int64_t, int64_t j) {
            std::vector<int64_t> order(static_cast<size_t>(extent));
            std::iota(order.begin(), order.end(), 0);
            const auto key = [&](int64_t e) { return values[at(along, o, e, j)]; };
            const auto below = [&](double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; };
            std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
              return largest ? below(key(b), key(a)) : below(key(a), key(b));
            });
            for (int64_t i = 0; i < k; ++i) {
              expected[at(Along(outer, k, inner), o, i, j)] = key(order[static_cast<size_t>(i)]);
              places[at(Along(outer, k, inner), o, i, j)] = static_cast<double>(order[static_cast<size_t>(i)]);
            }
          });
          CHECK(close(top, expected, 0));
          CHECK(close(index, places));
        }
      }
}
