// SPDX-License-Identifier: Apache-2.0
// What Weft asks of cuDNN without a card, which needs the library alone.
#include "tests/support/catch.h"
#include "weft/engine/kernels/cuda/convolution_plan.h"

using namespace weft;

#define SKIP_WITHOUT_CUDNN()            \
  if (!cuda::cudnn()) {                 \
    WARN("there is no cuDNN: skipped"); \
    return;                             \
  }

TEST_CASE("cuDNN has the convolutions that Weft describes, and no others") {
  SKIP_WITHOUT_CUDNN();
  const auto has = [&](const Convolution& c, DType type = DType::f32) {
    return cuda::ConvolutionDescriptors(*cuda::cudnn(), c, type, false).are_supported();
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    CHECK(has({2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1}, type));
    CHECK(has({1, 7, 9, 1, 2, 3, 2, 5, 8, 3, 1, 1, 0, 4, 2}, type));  // (7 + 2 - 4 - 1) / 3 + 1 by (9 - 4 - 1) + 1
  }
  CHECK(!has({2, 5, 6, 3, 3, 3, 5, 6, 4, 1, 1, 1, 1, 1, 1}, DType::f64));
  CHECK(!has({2, 5, 6, 3, 3, 3, 5, 5, 4, 1, 1, 1, 1, 1, 1}));  // the last column has no window
  CHECK(!has({1, 0, 4, 2, 1, 1, 2, 4, 3, 1, 1, 1, 0, 1, 1}));  // the images have no rows
  CHECK(!has({1, 4, 4, 2, 2, 2, 1, 3, 3, int64_t{1} << 32, 1, 0, 0, 1, 1}));
  CHECK(!has({4000, 900, 1100, 300, 1, 1, 900, 1100, 1}));  // more than 2^31 values
}

TEST_CASE("cuDNN's errors are in its words, and say how to do without it") {
  SKIP_WITHOUT_CUDNN();
  CHECK_THROWS_WITH(cuda::check(cuda::CUDNN_STATUS_BAD_PARAM, "cudnnCreate"),
                    "cuda: cudnnCreate failed: CUDNN_STATUS_BAD_PARAM; with WEFT_CUDNN= Weft convolves without cuDNN");
}
