// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything that a printed program needs.
#include <deque>

#include "tests/random_programs/numbers.h"
#include "tests/random_programs/registry.h"
#include "tests/random_programs/training.h"
#include "tests/random_programs/values.h"
#include "weft/collectives/collectives.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/collectives/started.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"

using namespace weft;                   // NOLINT: printed programs are pasted into tests
using namespace weft::random_programs;  // NOLINT
