// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every op of the engine.
#include "weft/engine/ops/dropout.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/images.h"
#include "weft/engine/ops/index.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/nearest.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"
