// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of the engine's face in Python. bind.py writes those of ops, collectives, losses and quantizers from the
// headers that declare them.
#include <nanobind/nanobind.h>

#include <optional>

#include "weft/collectives/call.h"
#include "weft/engine/tensor/tensor.h"

namespace weft::python {

namespace nb = nanobind;

void add_tensors(nb::module_& module);
void add_tapes(nb::module_& module);
void add_tapes_page(nb::module_& module);
void add_ranks(nb::module_& module);
void add_modules(nb::module_& module);

void add_ops(nb::module_& module);
void add_collectives(nb::module_& module);
void add_losses(nb::module_& module);
void add_quantizers(nb::module_& module);
void add_residual_quantizers(nb::module_& module);  // after these

// The values of a Tensor, of an array of any framework on the host, or of nested lists of numbers; a copy, because who
// made an array may change it later, unseen by a tape.
Tensor tensor_of(nb::handle values, std::optional<DType> dtype = {});

Site here();  // the line of Python that calls

}  // namespace weft::python
