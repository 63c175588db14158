// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <nanobind/nanobind.h>

namespace weft::python {

void add_verifier(nanobind::module_& module);

}  // namespace weft::python
