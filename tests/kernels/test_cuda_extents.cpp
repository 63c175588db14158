// SPDX-License-Identifier: Apache-2.0
// Extents beyond one grid or one tile on the card, and no writes outside of the output.
#include "tests/kernels/cuda_checks.h"

using namespace weft;

namespace {

constexpr int64_t blocks_of_a_grid = 1 << 16, threads_of_a_grid = blocks_of_a_grid * 256;

}  // namespace

TEST_CASE("kernels on the card write nothing outside of their output") {
  SKIP_WITHOUT_A_CARD();
  for (const DType type : all_types)
    for (const int64_t size : {1, 2, 3, 7, 15, 17, 31, 1023}) {
      INFO(size << " values of " << text(type));
      const auto fill = [&](Backend& device, const Tensors&, Tensors& out) {
        Tensor middle = out[0].slice(16, 16 + size);
        device.fill(5, middle);
      };
      compare(0, {}, {sample({size + 32}, type)}, fill);
    }
}

TEST_CASE("elements and tiles beyond one grid on the card are all computed") {
  SKIP_WITHOUT_A_CARD();
  const int64_t elements = threads_of_a_grid + 300, matrices = blocks_of_a_grid + 5;
  const Tensor seven = Tensor::full({1}, 7, DType::u8);
  compare(0, {seven}, {Tensor::zeros({elements}, DType::u8)}, VERB(repeat(in[0], Along(1, elements, 1), out[0])));
  const Tensor small = sample({matrices, 2, 3}, DType::u8);
  compare(0, {small}, {sample({matrices, 3, 2}, DType::u8)}, VERB(permute(in[0], Shape{0, 2, 1}, out[0])));

  Tensor pairs({2 * threads_of_a_grid + 4}, DType::f64, Device::cuda);  // written two at a time
  Tensor last = pairs.slice(2 * threads_of_a_grid - 4, pairs.size());
  last.copy_from(Tensor::zeros({8}, DType::f64));
  backend(Device::cuda).fill(5, pairs);
  CHECK(last.values() == std::vector<double>(8, 5));
}

TEST_CASE("more rows than a block has threads, and longer ones, are added up in their order on the card") {
  SKIP_WITHOUT_A_CARD();
  for (const int64_t length : {3, 700}) {
    const Tensor rows = Tensor::normal({1000, length}, {1}), chosen = integers({1000}, 6);
    compare(0, {rows, chosen}, {sample({7, length}, DType::f32)},
            VERB(scatter_add_rows(in[0], indices(in[1], 7), out[0])));
    compare(0, {rows, chosen}, {Tensor::zeros({4, 7, length}, DType::f64), Tensor::zeros({7}, DType::f64)},
            VERB(add_exact_rows(in[0], indices(in[1], 7), out[0], out[1])));
  }
}

TEST_CASE("a running sum of floats on the card is as accurate as the CPU's") {
  SKIP_WITHOUT_A_CARD();
  const Tensor x = Tensor::uniform({100'000}, {3}, 0, 1);
  for (const Along along : {Along(1, 100'000, 1), Along(1, 50'000, 2)})
    compare(1, {x}, {x}, VERB(cumulative_sum(in[0], along, false, out[0])));
}

TEST_CASE("the nearest codes of more rows than one block multiplies equal the CPU's") {
  SKIP_WITHOUT_A_CARD();
  const Tensor codes = Tensor::normal({8192, 1}, {1}), x = Tensor::normal({4100, 1}, {2});  // in blocks of 4096 rows
  compare(0, {x, codes}, {integers({4100}, 9)}, VERB(nearest_rows(in[0], in[1], out[0])));
}
