// SPDX-License-Identifier: Apache-2.0
// Every verb on the card against the same verb on the CPU, which has tests of its own. Samples are mostly quarters, so
// that sums and products are exact and must be bit-identical. Where functions or rounding are involved, the test states
// how many units in the last place of max(1, |value|) the two may differ.
#include <algorithm>
#include <array>
#include <numeric>

#include "tests/kernels/cuda_checks.h"
#include "weft/engine/kernels/scalar_ops.h"

using namespace weft;

TEST_CASE("the card computes every unary op and its derivatives like the CPU, to 16 units (second ones 64, bf16 1)") {
  SKIP_WITHOUT_A_CARD();
  const Scalars scalars = {0.25, 1.5};
  for (const DType type : floating)
    for (const Unary op : first<Unary>(static_cast<int>(Unary::Round) + 1))
      for (const Shape& shape : shapes) {
        INFO(text(type) << " op " << int(op) << " of " << shape.text());
        const bool positive = op == Unary::Log || op == Unary::Sqrt || op == Unary::Rsqrt || op == Unary::Pow ||
                              op == Unary::Reciprocal || op == Unary::Log1p;
        const Tensor x = sample(shape, type, positive ? 0.25 : -3), special = with_specials(x.clone());
        const Tensor g = sample(shape, type, -1, 1), h = sample(shape, type, -1, 1);
        compare(units(type, 16), {special}, {g}, VERB(unary(op, scalars, in[0], out[0])));
        compare(units(type, 16), {x, g}, {g}, VERB(slope(op, scalars, in[0], in[1], out[0])));
        compare(units(type, 64), {x, g, h}, {g}, VERB(curvature(op, scalars, in[0], in[1], in[2], out[0])));
      }
}

TEST_CASE("the card fills, casts, compares, selects and accumulates exactly; quotients to 8 units, powers to 64") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Shape& shape : shapes) {
      INFO(text(type) << " " << shape.text());
      const Tensor a = with_specials(sample(shape, type)), b = sample(shape, type, 0.25), y = sample(shape, type);
      const Tensor condition = integers(shape, 2).to(DType::u8);
      compare(0, {}, {y}, VERB(fill(2.5, out[0])));
      const Tensor fine = is_floating(type) ? Tensor::normal(shape, {1}, 0, 1, type) : b;  // with all bits in use
      for (const DType to : all_types) {
        compare(0, {b}, {sample(shape, to)}, VERB(cast(in[0], out[0])));
        if (is_floating(to)) compare(0, {fine}, {sample(shape, to)}, VERB(cast(in[0], out[0])));
      }
      for (const Binary op : first<Binary>(is_floating(type) ? static_cast<int>(Binary::MaximumShare) + 1 : 3)) {
        const bool of_power = op > Binary::Power && op < Binary::Minimum;  // derivatives of Power
        const double tolerance = of_power ? 64 : op == Binary::Divide || op == Binary::Power ? 8 : 0;
        compare(tolerance == 0 ? 0 : units(type, tolerance), {a, b}, {y}, VERB(binary(op, in[0], in[1], out[0])));
      }
      for (const Comparison op : first<Comparison>(4))
        compare(0, {a, b}, {condition}, VERB(compare(op, in[0], in[1], out[0])));
      compare(0, {condition, a, b}, {y}, VERB(where(in[0], in[1], in[2], out[0])));
      compare(0, {b}, {a}, VERB(binary(Binary::Multiply, out[0], in[0], out[0])));  // in place
      if (is_floating(type)) compare(0, {a}, {y}, VERB(accumulate(-1.5, in[0], out[0])));
    }
}

TEST_CASE("binary ops along an axis on the card equal the CPU's exactly, also for integers") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views)
      for (const Binary op : {Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Minimum, Binary::Maximum}) {
        INFO(text(type) << " op " << int(op) << " of " << shape_of(along).text());
        const Tensor a = sample(shape_of(along), type), b = sample(shape_of(along), type);
        compare(0, {a, b}, {a}, VERB(binary(op, in[0], in[1], out[0])));
        compare(0, {a, sample({along.extent}, type)}, {a}, VERB(binary_along(op, in[0], in[1], along, out[0])));
      }
}

TEST_CASE("verbs along any axis on the card equal the CPU's exactly where sums are exact") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views) {
      INFO(text(type) << " " << shape_of(along).text());
      const Tensor x = sample(shape_of(along), type), y = sample(reduced(along), type);
      const Tensor v = sample({along.extent}, type);
      const Tensor signs = Tensor::full(x.shape(), is_floating(type) ? -1 : 1, type);
      for (const Reduction op : {Reduction::sum, Reduction::maximum, Reduction::minimum})
        compare(0, {x}, {y}, VERB(reduce(op, in[0], along, out[0])));
      compare(0, {signs}, {y}, VERB(reduce(Reduction::product, in[0], along, out[0])));
      compare(0, {x}, {v}, VERB(reduce_outside(in[0], along, out[0])));
      compare(0, {y}, {x}, VERB(repeat(in[0], along, out[0])));
      compare(0, {x}, {x}, VERB(flip(in[0], along, out[0])));
      for (const bool reverse : {false, true})
        compare(0, {x}, {x}, VERB(cumulative_sum(in[0], along, reverse, out[0])));
    }
}

TEST_CASE("a float sum on the card is accurate, repeatable and independent of the other outer slices") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const Tensor x = Tensor::uniform({3, 100003}, Random{1, 2}, 0, 1, DType::f32, Device::cuda);
  Tensor y({3}, DType::f32, Device::cuda), again = Tensor::like(y), alone({1}, DType::f32, Device::cuda);
  card.reduce(Reduction::sum, x, Along(3, 100003, 1), y);
  card.reduce(Reduction::sum, x, Along(3, 100003, 1), again);
  card.reduce(Reduction::sum, x.slice(1, 2), Along(1, 100003, 1), alone);
  const std::vector<double> values = x.slice(1, 2).values();
  const double exact = std::accumulate(values.begin(), values.end(), 0.0);
  CHECK(y.values() == again.values());
  CHECK(y.values()[1] == alone.item());
  CHECK(std::abs(alone.item() - exact) < 3e-7 * exact);
}

TEST_CASE("the verbs on rows match the CPU to 32 units, log_softmax's pullback to 256, in bf16 to 2") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const Shape& shape : std::vector<Shape>{{1}, {3, 1}, {0, 5}, {70, 10}, {2, 3, 257}, {3, 1024}, {3, 2051}}) {
      INFO(text(type) << " " << shape.text());
      const double ulps = type == DType::bf16 ? 2 : 32;
      const Shape rows = shape.without(-1);
      const Tensor x = sample(shape, type), g = sample(shape, type, -1, 1), slope = sample(rows, type);
      const Tensor targets = integers(rows, shape[-1]), rstd = sample(rows, type, 0.25);
      Tensor shares = Tensor::like(x);
      for (const Normalizer kind : {Normalizer::softmax, Normalizer::log_softmax}) {
        compare(ulps, {x}, {g}, VERB(normalize_rows(kind, in[0], out[0])));
        backend(Device::cpu).normalize_rows(kind, x, shares);
        const double slack = kind == Normalizer::softmax || type == DType::bf16 ? 1 : 8;
        compare(slack * ulps, {shares, g}, {g}, VERB(normalize_rows_pullback(kind, in[0], in[1], out[0])));
      }
      compare(ulps, {x}, {slope}, VERB(log_sum_exp_rows(in[0], out[0])));
      const Tensor lengths = sample(rows, type == DType::bf16 ? DType::f32 : type, 0.25);
      compare(ulps, {x}, {g, lengths}, VERB(unit_rows(0.5, in[0], out[0], out[1])));
      compare(2 * ulps, {x, lengths, g}, {g}, VERB(unit_rows_pullback(0.5, in[0], in[1], in[2], out[0])));
      compare(ulps, {x}, {g, slope}, VERB(standardize_rows(1e-3, in[0], out[0], out[1])));
      compare(2 * ulps, {x, rstd, g}, {g}, VERB(standardize_rows_pullback(in[0], in[1], in[2], out[0])));
      compare(ulps, {x, targets}, {slope}, VERB(cross_entropy_rows(in[0], indices(in[1], shape[-1]), out[0])));
      compare(ulps, {x, targets, slope}, {g},
              VERB(cross_entropy_rows_pullback(in[0], indices(in[1], shape[-1]), in[2], out[0])));
    }
}

// A row of nearly equal values is scaled by up to 1 / sqrt(epsilon) = 32, together with its mean's rounding.
TEST_CASE("layer_norm's rows on the card match the CPU to 128 units, its pullback's to 256, in bf16 to 2") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const Shape& shape : std::vector<Shape>{{1}, {3, 1}, {0, 5}, {700, 10}, {2, 3, 257}, {3, 2051}, {9001, 3}})
      for (const bool relu : {false, true}) {
        INFO(text(type) << " " << shape.text() << (relu ? " relu" : ""));
        const double ulps = type == DType::bf16 ? 2 : 128, slack = type == DType::bf16 ? 1 : 2;
        const Tensor x = sample(shape, type), g = sample(shape, type, -1, 1), y = sample(shape, type);
        const Tensor gamma = sample({shape[-1]}, type), beta = sample({shape[-1]}, type);
        const Tensor moments = sample(shape.with(-1, 2), type == DType::bf16 ? DType::f32 : type, 0.25);
        compare(ulps, {x, gamma, beta}, {g, moments},
                VERB(layer_norm_rows(1e-3, relu, in[0], in[1], in[2], out[0], out[1])));
        const auto rectified = [relu](const Tensor& of) { return relu ? of : Tensor(); };
        compare(slack * ulps, {x, gamma, moments, y, g}, {g, gamma, beta},
                VERB(layer_norm_rows_pullback({in[0], in[1], in[2], rectified(in[3])}, in[4], out[0], out[1], out[2])));
      }
}

TEST_CASE("rows of infinities and NaN are normalised on the card as on the CPU") {
  SKIP_WITHOUT_A_CARD();
  const double i = infinity, n = not_a_number;
  const Tensor x = Tensor::from({5, 3}, {-i, -i, -i, -i, 1, 2, 1, i, 2, n, 1, 2, -i, n, i});
  compare(16, {x}, {Tensor::zeros({5})}, VERB(log_sum_exp_rows(in[0], out[0])));
  for (const Normalizer kind : {Normalizer::softmax, Normalizer::log_softmax})
    compare(16, {x}, {Tensor::zeros({5, 3})}, VERB(normalize_rows(kind, in[0], out[0])));
}

TEST_CASE("products on the card are exact in any layout; with bias and activation to 16 units, bf16 2") {
  SKIP_WITHOUT_A_CARD();
  const std::vector<std::array<int64_t, 4>> cases = {{1, 1, 1, 1}, {1, 7, 5, 3}, {3, 4, 9, 33}, {2, 65, 1, 17},
                                                     {2, 3, 4, 0}, {2, 0, 4, 3}, {0, 2, 2, 2}};  // batch, m, n, k
  for (const DType type : floating)
    for (const auto [batch, m, n, k] : cases)
      for (int bits = 0; bits < 32; ++bits) {
        const bool ta = bits & 1, tb = bits & 2, share_a = bits & 4, share_b = bits & 8, finished = bits & 16;
        const Shape a = ta ? Shape{k, m} : Shape{m, k}, b = tb ? Shape{n, k} : Shape{k, n}, matrix = {m, n};
        const auto many = [batch = batch](bool one, const Shape& s) { return one ? s : s.with_inserted(0, batch); };
        const Tensor y = sample(many(share_a && share_b, matrix), type);
        INFO(text(type) << " " << y.shape().text() << " k " << k << " variant " << bits);
        const Activation activation = {finished ? Unary::Tanh : Unary::Affine, {1, 0}};
        compare(!finished             ? 0
                : type == DType::bf16 ? 2
                                      : 16,
                {sample(many(share_a, a), type), sample(many(share_b, b), type), sample({n}, type)}, {y},
                VERB(matmul(in[0], ta, in[1], tb, {finished && !ta ? &in[2] : nullptr, activation}, out[0])));
      }
}

TEST_CASE("f32 products on the card keep 24 bits unless TF32 is allowed") {
  SKIP_WITHOUT_A_CARD();
  const auto product = [](double value) {
    const Tensor a = Tensor::full({64, 64}, value, DType::f32, Device::cuda);
    Tensor y = Tensor::like(a);
    backend(Device::cuda).matmul(a, false, Tensor::full({64, 64}, 1, DType::f32, Device::cuda), false, {}, y);
    return y.values();
  };
  const std::vector<double> exact(64 * 64, 64 * (1 + 0x1p-15));
  CHECK(product(1 + 0x1p-15) == exact);
  {
    const AllowedTf32 allowed;
    CHECK(product(1 + 0x1p-15) == std::vector<double>(64 * 64, 64));
    CHECK(product(1 + 0x1p-10) == std::vector<double>(64 * 64, 64 * (1 + 0x1p-10)));
  }
  CHECK(product(1 + 0x1p-15) == exact);
}

TEST_CASE("TF32 does not affect products and convolutions of bf16 and f64") {
  SKIP_WITHOUT_A_CARD();
  const Convolution c = {2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1};
  for (const DType type : {DType::bf16, DType::f64}) {
    const auto draw = [&](const Shape& shape, uint64_t stream) {
      return Tensor::normal(shape, {8, stream}, 0, 1, type, Device::cuda);
    };
    const auto results = [&] {
      Backend& card = backend(Device::cuda);
      const Tensor a = draw({2, 7, 9}, 0), b = draw({2, 9, 5}, 1), x = draw({2, 5, 6, 3}, 2), w = draw({3, 3, 3, 4}, 3);
      Tensor product = draw({2, 7, 5}, 4), g = draw({2, 5, 6, 4}, 5), dx = Tensor::like(x), dw = Tensor::like(w);
      card.matmul(a, false, b, false, {}, product);
      card.convolve(c, x, w, {}, g);
      card.convolve_input_gradient(c, g, w, dx);
      card.convolve_weight_gradient(c, x, g, dw);
      return std::vector{product.values(), g.values(), dx.values(), dw.values()};
    };
    const auto plain = results();
    const AllowedTf32 allowed;
    CHECK(results() == plain);
  }
}

TEST_CASE("TF32 does not affect nearest codes") {
  SKIP_WITHOUT_A_CARD();
  for (const int64_t width : {1, 3, 64}) {
    const Tensor x = Tensor::normal({200, width}, {8}), codes = Tensor::normal({150, width}, {9});
    const AllowedTf32 allowed;
    compare(0, {x, codes}, {Tensor::zeros({200}, DType::i64)}, VERB(nearest_rows(in[0], in[1], out[0])));
  }
}

TEST_CASE("the card's comparison finds a difference in any bit of a tensor") {
  SKIP_WITHOUT_A_CARD();
  const auto differ = [](const Tensor& a, const Tensor& b, double before = 0) {
    const Tensor y = Tensor::full({1}, before, DType::u8);
    double found = 0;
    compare(0, {a, b}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) {
      d.mark_difference(in[0], in[1], out[0]);
      found = out[0].item();
    });
    return found;
  };
  for (const DType type : all_types)
    for (const int64_t size : {0, 1, 16, 1001, 70'000}) {
      INFO(text(type) << " " << size);
      const Tensor x = with_specials(sample({size}, type));
      CHECK(differ(x, x.clone()) == 0);
      CHECK(differ(x, x.clone(), 1) == 1);
      for (const int64_t place : {int64_t{0}, size / 2, size - 1}) {
        if (size == 0) continue;
        Tensor other = x.clone();
        std::byte* const last = other.mutate<std::byte>() + (place + 1) * static_cast<int64_t>(size_of(type)) - 1;
        *last ^= std::byte{1};
        CHECK(differ(x, other) == 1);
      }
    }
  CHECK(differ(Tensor::from({1}, {0.0}), Tensor::from({1}, {-0.0})) == 1);
  CHECK(differ(Tensor::full({70'000}, 0), Tensor::full({70'000}, 1)) == 1);  // which many blocks find
}

TEST_CASE("verbs on indices and places move the same values on the card as on the CPU") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const int64_t length : {0, 1, 3, 16, 33})
      for (const int64_t count : {0, 1, 50}) {
        INFO(text(type) << " " << count << " rows of " << length);
        const Tensor table = sample({7, length}, type), rows = sample({count, length}, type);
        const Tensor chosen = integers({count}, 7);
        const Tensor slabs = sample({3, 9, length}, type), wider = sample({3, 11, length}, type);
        compare(0, {table, chosen}, {rows}, VERB(gather_rows(in[0], indices(in[1], 7), out[0])));
        if (is_floating(type)) {
          const auto add_twice = [&](Backend& d, const Tensors& in, Tensors& out) {
            for (int i = 0; i < 2; ++i) d.add_exact_rows(in[0], indices(in[1], 7), out[0], out[1]);
          };
          compare(0, {rows, chosen}, {table}, VERB(scatter_add_rows(in[0], indices(in[1], 7), out[0])));
          compare(0, {rows, chosen}, {Tensor::zeros({4, 7, length}, DType::f64), Tensor::zeros({7}, DType::f64)},
                  add_twice);
        }
        compare(0, {slabs}, {wider}, VERB(pad(in[0], Along(3, 9, length), 1, 2, out[0])));
        compare(0, {chosen}, {sample({count, 7}, type)}, VERB(one_hot(indices(in[0], 7), out[0])));
        compare(0, {slabs}, {wider},
                VERB(copy_slab(in[0], Along(3, 9, length), 2, out[0], Along(3, 11, length), 5, 4)));
      }
}

TEST_CASE("any permutation of axes moves the same values on the card as on the CPU") {
  SKIP_WITHOUT_A_CARD();
  const std::vector<Shape> permuted = {
      {}, {5}, {33, 70}, {3, 40, 65}, {2, 3, 4, 8}, {2, 1, 3, 2, 5}, {33, 2, 70}, {3, 0, 2}, {2, 3, 2, 1, 2, 16}};
  for (const DType type : all_types)
    for (const Shape& shape : permuted) {
      std::vector<int64_t> order(static_cast<size_t>(shape.rank())), extents(order);
      std::iota(order.begin(), order.end(), 0);
      do {
        for (size_t i = 0; i < order.size(); ++i) extents[i] = shape[static_cast<int>(order[i])];
        const Shape axes{std::span<const int64_t>(order)}, target{std::span<const int64_t>(extents)};
        INFO(text(type) << " " << shape.text() << " by " << axes.text());
        compare(0, {sample(shape, type)}, {sample(target, type)}, VERB(permute(in[0], axes, out[0])));
      } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST_CASE("uniform draws on the card have the CPU's bits, normal ones match to 8 units") {
  SKIP_WITHOUT_A_CARD();
  const Random random = {42, 7, 1000003};
  for (const DType type : floating)
    for (const Shape& shape : shapes) {
      compare(0, {}, {sample(shape, type)}, VERB(uniform(random, 0, 1, out[0])));
      compare(0, {}, {sample(shape, type)}, VERB(uniform(random, -2, 2, out[0])));
      compare(units(type, 8), {}, {sample(shape, type)}, VERB(normal(random, 1, 0.5, out[0])));
    }
}

TEST_CASE("sums of many arrays are added on the card with the CPU's bits") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating) {
    Tensors terms, sums;
    for (int64_t i = 0; i < 70; ++i) {
      const Shape shape{i == 35 ? 10007 : i % 7};
      terms.push_back(sample(shape, i % 50 == 49 ? DType::f64 : type));
      sums.push_back(sample(shape, terms.back().dtype()));
    }
    compare(0, terms, sums, [](Backend& d, const Tensors& in, Tensors& out) {
      std::vector<Addition> all;
      for (size_t i = 0; i < in.size(); ++i) all.push_back({i % 2 ? in[i] : out[i], i % 3 ? in[i] : out[i], out[i]});
      d.add_all(all);
    });
  }
}

TEST_CASE("exact parts are added on the card with the CPU's bits") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const double deviation : {1e3, 1e-15, 1e-25})
      for (const int64_t size : {0, 1, 1003})
        compare(0, {Tensor::normal({size}, {1}, 0, deviation, type)}, {sample({4, size}, DType::f64)},
                VERB(add_exact_parts(std::array{ExactRun{in[0]}}, out[0])));
  Tensors terms;
  for (int64_t i = 0; i < 150; ++i) terms.push_back(sample({i % 7}, i % 50 == 49 ? DType::f64 : DType::f32));
  compare(0, terms, {sample({4, 1000}, DType::f64)}, [](Backend& d, const Tensors& in, Tensors& out) {
    std::vector<ExactRun> runs;
    for (int64_t end = 1000; const Tensor& x : in) runs.push_back({x, end -= x.size() + 1});
    d.add_exact_parts(runs, out[0]);
  });
  for (const DType type : {DType::f64, DType::f32})
    compare(0, {sample({4, 1003}, DType::f64)}, {sample({1003}, type)}, VERB(exact_total(in[0], out[0])));
}
