// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/product_kinds.h"
#include "weft/engine/kernels/levels_x86_64.h"

weft::verify::MakeProduct& weft::verify::fastest_product() {
  return runs_v4() ? product_v4 : runs_v3() ? product_v3 : product_base;
}
