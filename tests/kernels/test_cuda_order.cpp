// SPDX-License-Identifier: Apache-2.0
// Extremes with their places and values in order on the card, against the CPU.
#include "tests/kernels/cuda_checks.h"

using namespace weft;

namespace {

// Many are equal, and each extent has all that compares in a way of its own.
Tensor varied(Along along, DType type) {
  const double most = type == DType::f64 ? 0x1p1023 : type == DType::i64 ? 0x1p62 : 0x1p127;
  const std::vector<double> common =
      is_floating(type)
          ? std::vector{0.0, -0.0, 1.0, -1.0, 1 / most, -1 / most, infinity, -infinity, not_a_number, -not_a_number}
      : type == DType::i64 ? std::vector{0.0, 1.0, -1.0, most, -most, -2 * most}
                           : std::vector{0.0, 1.0, 127.0, 128.0, 255.0};
  std::vector<double> values(static_cast<size_t>(shape_of(along).size()));
  for (double& v : values) {
    const size_t which = std::uniform_int_distribution<size_t>(0, 2 * common.size())(generator());
    const double other = std::uniform_real_distribution(-100.0, 100.0)(generator());
    v = which < common.size() ? common[which] : is_floating(type) ? other : std::abs(std::round(other));
  }
  return Tensor::from(shape_of(along), values, type);
}

bool same_bits(const Tensor& card, const Tensor& host) {
  Tensor difference({1}, DType::u8);
  difference.copy_from(Tensor::zeros({1}, DType::u8));
  backend(Device::cpu).mark_difference(card.to(Device::cpu), host, difference);
  return difference.item() == 0;
}

void compare_orders(const Tensor& x, Along along, const std::vector<int64_t>& counts) {
  const Tensor copy = on_card(x);
  for (const int64_t k : counts)
    for (const bool largest : {false, true}) {
      INFO(text(x.dtype()) << " " << x.shape().text() << ", the first " << k << (largest ? " descending" : ""));
      const Shape top = {along.outer, k, along.inner};
      Tensor values(top, x.dtype()), places(top, DType::i64);
      Tensor card_values(top, x.dtype(), Device::cuda), card_places(top, DType::i64, Device::cuda);
      backend(Device::cpu).top_k(x, along, k, largest, values, places);
      backend(Device::cuda).top_k(copy, along, k, largest, card_values, card_places);
      CHECK(same_bits(card_places, places));
      CHECK(same_bits(card_values, values));
    }
}

}  // namespace

TEST_CASE("extremes on the card and their places equal the CPU's exactly, with ties and NaN") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const Along along : views) {
      if (along.extent == 0) continue;
      INFO(text(type) << " " << shape_of(along).text());
      const Tensor plain = sample(shape_of(along), type), y = sample(reduced(along), type);
      for (const Tensor& x : {plain, with_specials(plain.clone())})
        for (const Reduction op : {Reduction::maximum, Reduction::minimum}) {
          compare(0, {x}, {y}, VERB(reduce(op, in[0], along, out[0])));
          if (is_floating(type)) {
            Tensor extremes = Tensor::like(y);
            backend(Device::cpu).reduce(op, x, along, extremes);
            compare(0, {x, extremes, y}, {x}, VERB(extreme_pullback(in[0], in[1], in[2], along, out[0])));
          }
          compare(0, {x}, {integers(reduced(along), 9)}, VERB(arg_reduce(op, in[0], along, out[0])));
        }
    }
}

TEST_CASE("short lines are sorted on the card with the CPU's bits, many in a block") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const int64_t extent : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 130, 1023, 1024, 1025})
      for (const auto& [outer, inner] : {std::pair<int64_t, int64_t>{1, 1}, {5, 1}, {2, 7}, {0, 3}, {3, 0}}) {
        const Along along(outer, extent, inner);
        compare_orders(varied(along, type), along, {0, std::min<int64_t>(extent, 3), extent / 3, extent});
      }
  const Along many(700, 3, 11);  // in more than one block
  compare_orders(varied(many, DType::f32), many, {1, 3});
}

TEST_CASE("lines of one block and of several pieces are sorted on the card with the CPU's bits") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const int64_t extent : {2048, 2049, 4096, 4097, 10'000}) {  // a piece is 2048 or 4096 long
      const Along rows(2, extent, 1), columns(1, extent, 3);
      compare_orders(varied(rows, type), rows, {5, 100, extent - 1, extent});
      compare_orders(varied(columns, type), columns, {3000 % extent, extent});
    }
  const Along longest(1, 70'000, 1);  // the last pieces are merged alone in some passes
  for (const DType type : {DType::f32, DType::f64}) compare_orders(varied(longest, type), longest, {50, 5000, 70'000});
}

TEST_CASE("lines in order, in reverse or of equal values are sorted on the card as on the CPU") {
  SKIP_WITHOUT_A_CARD();
  const Along along(1, 20'000, 1);
  for (const Tensor& x : {Tensor::arange(20'000), Tensor::full({20'000}, 3)}) compare_orders(x, along, {700, 20'000});
}
