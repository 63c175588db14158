// Every verb on the card against the same verb on the CPU, which has tests of its own. Samples are mostly quarters, so
// that sums and products are exact and must agree to the last bit; where functions or rounding come in, the case says by
// how many units in the last place, of the larger of 1 and the value, the two may differ.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "engine/backend.h"

using namespace weft;

namespace {

using Tensors = std::vector<Tensor>;
const double not_a_number = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
const std::vector<DType> floating = {DType::f32, DType::f64, DType::bf16};
const std::vector<DType> all_types = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::u8};
const std::vector<Shape> shapes = {{}, {0}, {1}, {3, 0, 2}, {7, 11}, {16, 64}, {5, 3, 33}, {40, 1031}};
const std::vector<Along> views = {{1, 1, 1}, {3, 5, 1},   {2, 7, 3},   {1, 1003, 1}, {2, 130, 40}, {1, 300, 601}, {1, 9001, 1},
                                  {5, 64, 1}, {1, 999, 31}, {40, 3, 1}, {2, 1, 700},  {0, 3, 2},    {3, 4, 0},     {3, 0, 4}};

#define SKIP_WITHOUT_A_CARD()          \
  if (!available(Device::cuda)) {      \
    WARN("no card answers: skipped"); \
    return;                            \
  }

std::mt19937& generator() {
  static std::mt19937 instance(11);
  return instance;
}
Tensor sample(const Shape& shape, DType type, double low = -3, double high = 3) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values)
    v = is_floating(type) ? std::round(std::uniform_real_distribution(4 * low, 4 * high)(generator())) / 4
                          : std::uniform_int_distribution(0, 9)(generator());
  return Tensor::from(shape, values, type);
}
Tensor integers(const Shape& shape, int64_t below) {
  std::vector<double> values(static_cast<size_t>(shape.size()));
  for (double& v : values) v = static_cast<double>(std::uniform_int_distribution<int64_t>(0, below - 1)(generator()));
  return Tensor::from(shape, values, DType::i64);
}
Tensor with_specials(Tensor x) {
  if (!is_floating(x.dtype()) || x.size() < 8) return x;
  x.reshape({x.size()}).slice(2, 7).copy_from(Tensor::from({5}, {not_a_number, infinity, -infinity, 0.0, -0.0}, x.dtype()));
  return x;
}
Shape shape_of(Along a) { return {a.outer, a.extent, a.inner}; }
Shape reduced(Along a) { return {a.outer, a.inner}; }

// On the card; every other one where no vector access is possible.
Tensor on_card(const Tensor& x) {
  static int calls = 0;
  if (++calls % 2 == 0) return x.to(Device::cuda);
  Tensor view = Tensor({x.size() + 1}, x.dtype(), Device::cuda).slice(1, x.size() + 1).reshape(x.shape());
  view.copy_from(x);
  return view;
}

bool close(const Tensor& card, const Tensor& host, double ulps) {
  const DType type = host.dtype();
  const double unit = type == DType::f32 ? 0x1p-23 : type == DType::f64 ? 0x1p-52 : type == DType::bf16 ? 0x1p-8 : 0;
  const std::vector<double> values = card.values(), expected = host.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const bool same = values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
    if (same || std::abs(values[i] - expected[i]) <= ulps * unit * std::max(1.0, std::abs(expected[i]))) continue;
    UNSCOPED_INFO(text(type) << " element " << i << " is " << values[i] << " on the card, " << expected[i] << " on the CPU");
    return false;
  }
  return true;
}

// Runs verb(backend, in, out) on both devices, on equal inputs and equal first contents of the outputs.
template <class Verb>
void compare(double ulps, const Tensors& in, Tensors out, const Verb& verb) {
  Tensors card_in, card_out;
  for (const Tensor& x : in) card_in.push_back(x.defined() ? on_card(x) : x);
  for (const Tensor& y : out) card_out.push_back(on_card(y));
  verb(backend(Device::cpu), in, out);
  verb(backend(Device::cuda), card_in, card_out);
  for (size_t i = 0; i < out.size(); ++i) CHECK(close(card_out[i], out[i], ulps));
}

template <class Op> std::vector<Op> listed(int count) {
  std::vector<Op> ops;
  for (int i = 0; i < count; ++i) ops.push_back(static_cast<Op>(i));
  return ops;
}
double units(DType type, double wide) { return type == DType::bf16 ? 1 : wide; }  // wide: for f32 and f64

}  // namespace

TEST_CASE("the card computes every unary op and its derivatives like the CPU, to 16 units, and to 1 in bf16") {
  SKIP_WITHOUT_A_CARD();
  const Scalars scalars = {0.25, 1.5};
  for (const DType type : floating)
    for (const Unary op : listed<Unary>(static_cast<int>(Unary::Round) + 1))
      for (const Shape& shape : shapes) {
        INFO(text(type) << " op " << int(op) << " of " << shape.text());
        const bool positive = op == Unary::Log || op == Unary::Sqrt || op == Unary::Rsqrt || op == Unary::Pow ||
                              op == Unary::Reciprocal || op == Unary::Log1p;
        const Tensor x = sample(shape, type, positive ? 0.25 : -3), g = sample(shape, type), h = sample(shape, type);
        const Tensor y = sample(shape, type);
        compare(units(type, 16), {with_specials(x.clone())}, {y},
                [&](Backend& b, const Tensors& in, Tensors& out) { b.unary(op, scalars, in[0], out[0]); });
        compare(units(type, 16), {x, g}, {y},
                [&](Backend& b, const Tensors& in, Tensors& out) { b.slope(op, scalars, in[0], in[1], out[0]); });
        compare(units(type, 64), {x, g, h}, {y},
                [&](Backend& b, const Tensors& in, Tensors& out) { b.curvature(op, scalars, in[0], in[1], in[2], out[0]); });
      }
}

TEST_CASE("the card fills, casts, compares, selects and combines like the CPU, exactly but for division and powers") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Shape& shape : shapes) {
      INFO(text(type) << " " << shape.text());
      const Tensor a = with_specials(sample(shape, type)), b = sample(shape, type, 0.25), y = sample(shape, type);
      compare(0, {}, {y}, [](Backend& d, const Tensors&, Tensors& out) { d.fill(2.5, out[0]); });
      for (const DType to : all_types)
        compare(0, {b}, {sample(shape, to)}, [](Backend& d, const Tensors& in, Tensors& out) { d.cast(in[0], out[0]); });
      for (const Binary op : listed<Binary>(is_floating(type) ? 8 : 3))
        compare(op == Binary::Divide || op == Binary::Power ? units(type, 8) : 0, {a, b}, {y},
                [&](Backend& d, const Tensors& in, Tensors& out) { d.binary(op, in[0], in[1], out[0]); });
      for (const Comparison op : listed<Comparison>(4))
        compare(0, {a, b}, {sample(shape, DType::u8)},
                [&](Backend& d, const Tensors& in, Tensors& out) { d.compare(op, in[0], in[1], out[0]); });
      compare(0, {integers(shape, 2).to(DType::u8), a, b}, {y},
              [](Backend& d, const Tensors& in, Tensors& out) { d.where(in[0], in[1], in[2], out[0]); });
      if (!is_floating(type)) continue;
      compare(0, {a}, {y}, [](Backend& d, const Tensors& in, Tensors& out) { d.accumulate(-1.5, in[0], out[0]); });
      compare(0, {b}, {a}, [](Backend& d, const Tensors& in, Tensors& out) {  // in place
        d.binary(Binary::Multiply, out[0], in[0], out[0]);
      });
    }
}

TEST_CASE("minimum and maximum of integers and ops along an axis agree exactly") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views)
      for (const Binary op : {Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Minimum, Binary::Maximum}) {
        INFO(text(type) << " op " << int(op) << " of " << shape_of(along).text());
        const Tensor a = sample(shape_of(along), type), v = sample({along.extent}, type), y = sample(shape_of(along), type);
        compare(0, {a, a.clone()}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) { d.binary(op, in[0], in[1], out[0]); });
        compare(0, {a, v}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) {
          d.binary_along(op, in[0], in[1], along, out[0]);
        });
      }
}

TEST_CASE("reductions along any axis agree exactly where sums are exact") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views) {
      INFO(text(type) << " " << shape_of(along).text());
      const Tensor x = sample(shape_of(along), type), y = sample(reduced(along), type);
      for (const Reduction op : {Reduction::sum, Reduction::maximum, Reduction::minimum})
        compare(0, {x}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) { d.reduce(op, in[0], along, out[0]); });
      Tensor signs = Tensor::full(shape_of(along), 1, type);
      if (is_floating(type) && signs.size() > 0) signs.slice(0, 1).copy_from(Tensor::full(signs.slice(0, 1).shape(), -1, type));
      compare(0, {signs}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) { d.reduce(Reduction::product, in[0], along, out[0]); });
      compare(0, {x}, {sample({along.extent}, type)}, [&](Backend& d, const Tensors& in, Tensors& out) {
        d.reduce_outside(in[0], along, out[0]);
      });
      compare(0, {y}, {x.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.repeat(in[0], along, out[0]); });
      compare(0, {x}, {x.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.flip(in[0], along, out[0]); });
      for (const bool reverse : {false, true})
        compare(0, {x}, {x.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) {
          d.cumulative_sum(in[0], along, reverse, out[0]);
        });
    }
}

TEST_CASE("extremes and orders agree exactly, with ties and NaN") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views) {
      if (along.extent == 0) continue;
      INFO(text(type) << " " << shape_of(along).text());
      for (const Tensor& x : {sample(shape_of(along), type), with_specials(sample(shape_of(along), type))}) {
        for (const Reduction op : {Reduction::maximum, Reduction::minimum}) {
          compare(0, {x}, {sample(reduced(along), type)}, [&](Backend& d, const Tensors& in, Tensors& out) {
            d.reduce(op, in[0], along, out[0]);
          });
          compare(0, {x}, {sample(reduced(along), DType::i64)}, [&](Backend& d, const Tensors& in, Tensors& out) {
            d.arg_reduce(op, in[0], along, out[0]);
          });
        }
        if (along.extent > 1100) continue;
        for (const int64_t k : {int64_t{0}, std::min<int64_t>(along.extent, 3), along.extent})
          for (const bool largest : {false, true})
            compare(0, {x}, {sample({along.outer, k, along.inner}, type), sample({along.outer, k, along.inner}, DType::i64)},
                    [&](Backend& d, const Tensors& in, Tensors& out) { d.top_k(in[0], along, k, largest, out[0], out[1]); });
      }
    }
}

TEST_CASE("a float sum on the card is accurate and does not depend on the other outer slices") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const Tensor x = Tensor::uniform({3, 100003}, Random{1, 2}, 0, 1, DType::f32, Device::cuda);
  Tensor y({3}, DType::f32, Device::cuda), again = Tensor::like(y), alone({1}, DType::f32, Device::cuda);
  card.reduce(Reduction::sum, x, Along(3, 100003, 1), y);
  card.reduce(Reduction::sum, x, Along(3, 100003, 1), again);
  card.reduce(Reduction::sum, x.slice(1, 2), Along(1, 100003, 1), alone);
  double exact = 0;
  for (const double v : x.slice(1, 2).values()) exact += v;
  CHECK(y.values() == again.values());
  CHECK(y.values()[1] == alone.item());
  CHECK(std::abs(alone.item() - exact) < 3e-7 * exact);
}

TEST_CASE("the verbs on rows agree to 32 units, and to 4 in bf16") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const Shape& shape : {Shape{1}, Shape{3, 1}, Shape{0, 5}, Shape{70, 10}, Shape{2, 3, 257}, Shape{3, 1024}, Shape{3, 2051}}) {
      INFO(text(type) << " " << shape.text());
      const double ulps = type == DType::bf16 ? 4 : 32;
      const Shape rows = shape.without(-1);
      const Tensor x = sample(shape, type), g = sample(shape, type, -1, 1), y = sample(shape, type), row = sample(rows, type);
      const Tensor targets = integers(rows, shape[-1]), slope = sample(rows, type), positive = sample(rows, type, 0.25);
      for (const Normalizer kind : {Normalizer::softmax, Normalizer::log_softmax}) {
        compare(ulps, {x}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) { d.normalize_rows(kind, in[0], out[0]); });
        Tensor normalized = Tensor::like(x);
        backend(Device::cpu).normalize_rows(kind, x, normalized);
        compare(kind == Normalizer::softmax ? ulps : 8 * ulps, {normalized, g}, {y}, [&](Backend& d, const Tensors& in, Tensors& out) {
          d.normalize_rows_pullback(kind, in[0], in[1], out[0]);
        });
      }
      compare(ulps, {x}, {row}, [](Backend& d, const Tensors& in, Tensors& out) { d.log_sum_exp_rows(in[0], out[0]); });
      compare(ulps, {x}, {y, row}, [](Backend& d, const Tensors& in, Tensors& out) { d.standardize_rows(1e-3, in[0], out[0], out[1]); });
      compare(2 * ulps, {x, positive, g}, {y}, [](Backend& d, const Tensors& in, Tensors& out) {
        d.standardize_rows_pullback(in[0], in[1], in[2], out[0]);
      });
      compare(ulps, {x, targets}, {row}, [](Backend& d, const Tensors& in, Tensors& out) { d.cross_entropy_rows(in[0], in[1], out[0]); });
      compare(ulps, {x, targets, slope}, {y}, [](Backend& d, const Tensors& in, Tensors& out) {
        d.cross_entropy_rows_pullback(in[0], in[1], in[2], out[0]);
      });
    }
}

TEST_CASE("rows of infinities and NaN normalise alike") {
  SKIP_WITHOUT_A_CARD();
  const double i = infinity, n = not_a_number;
  const Tensor x = Tensor::from({5, 3}, {-i, -i, -i, -i, 1, 2, 1, i, 2, n, 1, 2, -i, n, i});
  compare(16, {x}, {Tensor({5})}, [](Backend& d, const Tensors& in, Tensors& out) { d.log_sum_exp_rows(in[0], out[0]); });
  for (const Normalizer kind : {Normalizer::softmax, Normalizer::log_softmax})
    compare(16, {x}, {Tensor({5, 3})}, [&](Backend& d, const Tensors& in, Tensors& out) { d.normalize_rows(kind, in[0], out[0]); });
}

TEST_CASE("matrix products with every transposition, shared operands and empty sums agree; activations to 16 units") {
  SKIP_WITHOUT_A_CARD();
  struct Case { int64_t batch, m, n, k; };
  for (const DType type : floating)
    for (const auto& [batch, m, n, k] : {Case{1, 1, 1, 1}, {1, 7, 5, 3}, {3, 4, 9, 33}, {2, 65, 1, 17}, {2, 3, 4, 0}, {2, 0, 4, 3}, {0, 2, 2, 2}})
      for (int variant = 0; variant < 32; ++variant) {
        const bool ta = variant & 1, tb = variant & 2, share_a = variant & 4, share_b = variant & 8, finished = variant & 16;
        const auto operand = [&, batch = batch](bool shared, bool transposed, int64_t rows, int64_t columns) {
          const Shape matrix = transposed ? Shape{columns, rows} : Shape{rows, columns};
          return sample(shared ? matrix : matrix.with_inserted(0, batch), type);
        };
        const Shape shape = share_a && share_b ? Shape{m, n} : Shape{batch, m, n};
        INFO(text(type) << " " << shape.text() << " k " << k << " variant " << variant);
        compare(finished ? 16 * units(type, 1) / (type == DType::bf16 ? 4 : 1) : 0,
                {operand(share_a, ta, m, k), operand(share_b, tb, k, n), sample({n}, type)}, {sample(shape, type)},
                [&, ta, tb](Backend& d, const Tensors& in, Tensors& out) {
                  const Epilogue epilogue = {finished ? &in[2] : nullptr, {finished ? Unary::Tanh : Unary::Affine, {1, 0}}};
                  d.matmul(in[0], ta, in[1], tb, epilogue, out[0]);
                });
      }
}

TEST_CASE("f32 products on the card keep 24 bits unless TF32 is allowed") {
  SKIP_WITHOUT_A_CARD();
  const Tensor a = Tensor::full({64, 64}, 1 + 0x1p-20, DType::f32, Device::cuda);
  const Tensor identity = Tensor::full({64, 64}, 1, DType::f32, Device::cuda);
  Tensor y = Tensor::like(a);
  backend(Device::cuda).matmul(a, false, identity, false, {}, y);
  for (const double v : y.values()) REQUIRE(v == 64 * (1 + 0x1p-20));
}

TEST_CASE("verbs on indices and places move the same values") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const int64_t length : {0, 1, 3, 16, 33})
      for (const int64_t count : {0, 1, 50}) {
        INFO(text(type) << " " << count << " rows of " << length);
        const Tensor indices = integers({count}, 7);
        compare(0, {sample({7, length}, type), indices}, {sample({count, length}, type)},
                [](Backend& d, const Tensors& in, Tensors& out) { d.gather_rows(in[0], in[1], out[0]); });
        compare(0, {indices}, {sample({count, 7}, type)}, [](Backend& d, const Tensors& in, Tensors& out) { d.one_hot(in[0], out[0]); });
        if (is_floating(type))
          compare(0, {sample({count, length}, type), indices}, {sample({7, length}, type)},
                  [](Backend& d, const Tensors& in, Tensors& out) { d.scatter_add_rows(in[0], in[1], out[0]); });
        compare(0, {sample({3, 9, length}, type)}, {sample({3, 11, length}, type)}, [&](Backend& d, const Tensors& in, Tensors& out) {
          d.copy_slab(in[0], Along(3, 9, length), 2, out[0], Along(3, 11, length), 5, 4);
        });
      }
}

TEST_CASE("any permutation of axes moves the same values") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{33, 70}, Shape{3, 40, 65}, Shape{2, 3, 4, 8}, Shape{2, 1, 3, 2, 5}, Shape{3, 0, 2}, Shape{2, 3, 2, 1, 2, 16}}) {
      std::vector<int64_t> order(static_cast<size_t>(shape.rank()));
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
      do {
        std::vector<int64_t> extents;
        for (const int64_t axis : order) extents.push_back(shape[static_cast<int>(axis)]);
        INFO(text(type) << " " << shape.text() << " to " << Shape(std::span<const int64_t>(extents)).text());
        compare(0, {sample(shape, type)}, {sample(Shape(std::span<const int64_t>(extents)), type)},
                [&](Backend& d, const Tensors& in, Tensors& out) { d.permute(in[0], Shape(std::span<const int64_t>(order)), out[0]); });
      } while (std::next_permutation(order.begin(), order.end()) && (shape.rank() < 5 || generator()() % 8 == 0));
    }
}

TEST_CASE("convolutions, their gradients, unfold and fold agree exactly; finished ones to 16 units, bf16 to 4") {
  SKIP_WITHOUT_A_CARD();
  std::vector<Convolution> cases = {{2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1}, {1, 7, 8, 8, 3, 2, 3, 4, 5, 2, 2, 1, 1, 2, 1},
                                    {3, 4, 4, 5, 1, 1, 4, 4, 6, 1, 1, 0, 0, 1, 1}, {2, 6, 5, 2, 4, 4, 3, 2, 3, 2, 3, 2, 1, 1, 1},
                                    {0, 4, 4, 2, 3, 3, 4, 4, 2, 1, 1, 1, 1, 1, 1}, {2, 4, 4, 3, 1, 1, 2, 2, 2, 2, 2, 0, 0, 1, 1}};
  cases.push_back({5, 65, 64, 64, 5, 5, 65, 64, 1, 1, 1, 2, 2, 1, 1});  // more than one part: 133 MB when unfolded in f32
  for (const DType type : floating)
    for (const Convolution& c : cases) {
      if (c.channels == 64 && type != DType::f32) continue;
      INFO(text(type) << " " << c.height << "x" << c.width << " by " << c.kernel_height << "x" << c.kernel_width);
      const Shape images = {c.batch, c.height, c.width, c.channels}, outputs = {c.batch, c.out_height, c.out_width, c.out_channels};
      const Shape kernel = {c.kernel_height, c.kernel_width, c.channels, c.out_channels};
      const Shape unfolded = {c.batch, c.out_height, c.out_width, c.kernel_height * c.kernel_width, c.channels};
      const Tensor x = sample(images, type), w = sample(kernel, type, -1, 1), g = sample(outputs, type), bias = sample({c.out_channels}, type);
      compare(0, {x, w}, {g.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.convolve(c, in[0], in[1], {}, out[0]); });
      compare(type == DType::bf16 ? 4 : 16, {x, w, bias}, {g.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) {
        d.convolve(c, in[0], in[1], {&in[2], {Unary::Silu, {}}}, out[0]);
      });
      compare(0, {g, w}, {x.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.convolve_input_gradient(c, in[0], in[1], out[0]); });
      compare(0, {x, g}, {w.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.convolve_weight_gradient(c, in[0], in[1], out[0]); });
      if (c.channels == 64) continue;
      compare(0, {x}, {sample(unfolded, type)}, [&](Backend& d, const Tensors& in, Tensors& out) { d.unfold(c, in[0], out[0]); });
      compare(0, {sample(unfolded, type)}, {x.clone()}, [&](Backend& d, const Tensors& in, Tensors& out) { d.fold(c, in[0], out[0]); });
    }
}

TEST_CASE("uniform draws have the same bits on the card, normal ones agree to 8 units") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : floating)
    for (const Shape& shape : shapes) {
      const Random random = {42, 7, 1000003};
      compare(0, {}, {sample(shape, type)}, [&](Backend& d, const Tensors&, Tensors& out) { d.uniform(random, 0, 1, out[0]); });
      compare(0, {}, {sample(shape, type)}, [&](Backend& d, const Tensors&, Tensors& out) { d.uniform(random, -2, 2, out[0]); });
      compare(units(type, 8), {}, {sample(shape, type)}, [&](Backend& d, const Tensors&, Tensors& out) { d.normal(random, 1, 0.5, out[0]); });
    }
}

TEST_CASE("values survive the way to the card and back, also when they outrun the staging memory") {
  SKIP_WITHOUT_A_CARD();
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 19, (int64_t{5} << 20) + 3}) {
    const Tensor x = Tensor::uniform({size}, Random{3});
    const Tensor there = x.to(Device::cuda), copy = there.clone();
    CHECK(copy.to(Device::cpu).values() == x.values());
  }
}

TEST_CASE("a step that is repeated takes nothing more from the card's system") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const auto step = [&] {
    const Tensor x = sample({60, 1000}, DType::f32).to(Device::cuda), w = sample({1000, 30}, DType::f32).to(Device::cuda);
    Tensor y({60, 30}, DType::f32, Device::cuda), sum({1}, DType::f32, Device::cuda);
    card.matmul(x, false, w, false, {}, y);
    card.reduce(Reduction::sum, x, Along(1, 60000, 1), sum);
    return sum.item();
  };
  step();
  const MemoryStatistics before = card.memory();
  for (int i = 0; i < 3; ++i) step();
  CHECK(card.memory().system_calls == before.system_calls);
  CHECK(card.memory().live_bytes == before.live_bytes);
  CHECK(card.memory().peak_bytes == before.peak_bytes);
}

TEST_CASE("a block freed by another thread comes home, and a new thread inherits what an ended one left") {
  SKIP_WITHOUT_A_CARD();
  Backend& card = backend(Device::cuda);
  const Shape odd = {12345677};
  const int64_t live = card.memory().live_bytes;
  for (int round = 0; round < 3; ++round) {
    Tensor mine = Tensor::full(odd, 1, DType::u8, Device::cuda);
    card.synchronize();
    const int64_t calls = card.memory().system_calls;
    std::thread([given = std::move(mine)]() mutable {
      Tensor copy = given.clone();  // on this thread's stream
      given = {};
      CHECK(copy.slice(0, 5).values() == std::vector<double>(5, 1));
    }).join();
    CHECK(card.memory().live_bytes == live);
    if (round > 0) CHECK(card.memory().system_calls == calls);
  }
}

TEST_CASE("a request beyond the card's memory is an error that names the sizes and leaves the card usable") {
  SKIP_WITHOUT_A_CARD();
  CHECK_THROWS_WITH(Tensor({int64_t{1} << 50}, DType::u8, Device::cuda), Catch::Contains("no memory for 1125899906842624 bytes"));
  CHECK(Tensor::full({3}, 2, DType::f32, Device::cuda).values() == std::vector<double>(3, 2));
}
