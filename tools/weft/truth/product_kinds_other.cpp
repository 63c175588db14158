// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/truth/product_kinds.h"

weft::verify::MakeProduct& weft::verify::fastest_product() { return product_base; }
