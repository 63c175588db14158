#pragma once
// Every op of the engine.
#include "engine/ops/dropout.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/images.h"
#include "engine/ops/index.h"
#include "engine/ops/matmul.h"
#include "engine/ops/nearest.h"
#include "engine/ops/normalize.h"
#include "engine/ops/reduce.h"
#include "engine/ops/shape_ops.h"
