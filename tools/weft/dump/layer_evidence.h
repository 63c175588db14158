// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reads what a dump says of layers.
#include "tools/weft/dump/evidence.h"
#include "tools/weft/dump/roles.h"

namespace weft::verify {

bool is_of_layer(Role::Kind kind);
void place_in_layer(Dump& dump, const Role& role, const Matrix& values, const Precision& precision, size_t rank);
// Error unless all tensors of all layers are there, and fit.
void check_layers(Dump& dump);

}  // namespace weft::verify
